from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from dhocl.heads.banks import gather, similarities, unit
from tensors import precise
from tensors import unit as directions

seeds = st.integers(0, 1000)


@given(seeds)
def test_unit_vectors_and_their_gradient_are_those_of_normalize(seed: int) -> None:
    x, weights = (3 * precise(4, 5, 6, seed=seed)).requires_grad_(), precise(4, 5, 6, seed=seed + 1)
    found, expected = unit(x), F.normalize(x, dim=2)
    torch.testing.assert_close(found, expected)
    gradients = (torch.autograd.grad((side * weights).sum(), x) for side in (found, expected))
    torch.testing.assert_close(*gradients)


@given(seeds)
def test_similarity_and_its_gradient_are_those_of_the_largest_cosine(seed: int) -> None:
    banks = [(place + 1) * directions(size, 4, 8, seed=seed + place).double() for place, size in enumerate((2, 3))]
    twins = [bank.clone().requires_grad_() for bank in banks]
    every = [bank.requires_grad_() for bank in banks]
    a, b = torch.tensor([0, 4, 1, 0]), torch.tensor([3, 2, 1, 3])
    together = torch.cat(twins)
    by_hand = torch.stack(
        [
            torch.stack([F.cosine_similarity(p, q, dim=0) for p in together[i] for q in together[j]]).max()
            for i, j in zip(a, b, strict=True)
        ]
    )
    found = similarities(every, a, b)
    torch.testing.assert_close(found, by_hand)
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.double)
    (found * weights).sum().backward()
    (by_hand * weights).sum().backward()
    for bank, twin in zip(every, twins, strict=True):
        torch.testing.assert_close(bank.grad, twin.grad)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any), st.data())
def test_rows_gathered_from_parts_are_those_of_all_parts_together(sizes: list[int], data: st.DataObject) -> None:
    parts = [directions(size, 2, 3, seed=place) for place, size in enumerate(sizes)]
    rows = torch.tensor(sorted(data.draw(st.lists(st.integers(0, sum(sizes) - 1), min_size=1))))
    assert torch.equal(gather(parts, rows), torch.cat(parts)[rows])
