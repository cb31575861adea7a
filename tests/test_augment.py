from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.augment import augment, augment_each


@given(st.integers(0, 200), st.booleans(), st.integers(1, 5))
def test_every_result_is_a_shifted_and_perhaps_mirrored_image(seed: int, flip: bool, b: int) -> None:
    x = torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (b, 3, 8, 8))).to(torch.uint8)
    out = augment(x, np.random.default_rng(seed), flip, shift=0.25)
    padded = torch.nn.functional.pad(x.float(), (2, 2, 2, 2), mode="replicate").to(torch.uint8)
    for image, result in zip(padded, out, strict=True):
        shifted = [image[:, i : i + 8, j : j + 8] for i in range(5) for j in range(5)]
        allowed = shifted + ([s.flip(2) for s in shifted] if flip else [])
        assert any(torch.equal(result, s) for s in allowed)


def test_nothing_to_do_changes_nothing() -> None:
    x = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    assert torch.equal(augment(x, np.random.default_rng(0), flip=False, shift=0), x)


@given(st.integers(0, 200), st.booleans(), st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_together_or_one_by_one_is_the_same(seed: int, flip: bool, sizes: list[int]) -> None:
    batches = [torch.randint(0, 256, (size, 3, 8, 8), dtype=torch.uint8) for size in sizes]
    rng = np.random.default_rng(seed)
    alone = torch.cat([augment(x, rng, flip, shift=0.25) for x in batches])
    assert torch.equal(augment_each(batches, np.random.default_rng(seed), flip, shift=0.25), alone)
