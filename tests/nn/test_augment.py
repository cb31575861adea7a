"""Augmentations against PIL, NumPy and, for crops, an image whose pixels say where they came from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.nn import augment as module
from dhocl.nn.augment import OPERATIONS, augment, augment_each, rand_augment, random_grayscale, resized_crop, rotated

SIZE = 24
seeds = st.integers(0, 300)


def images(b: int, seed: int = 0, size: int = SIZE) -> Tensor:
    """Smooth ones, on less than the whole range."""
    rng = np.random.default_rng(seed)
    small = torch.from_numpy(rng.integers(20, 230, (b, 3, 5, 5))).float()
    return torch.nn.functional.interpolate(small, (size, size), mode="bilinear").round().to(torch.uint8)


def coordinates(b: int) -> Tensor:
    """(b, 3, SIZE, SIZE): channel 0 is the column, channel 1 the row."""
    row, column = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    return torch.stack([column, row, torch.zeros_like(row)]).expand(b, 3, SIZE, SIZE).to(torch.uint8)


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


@given(seeds, st.booleans())
def test_a_crop_is_a_window_inside_the_image(seed: int, flip: bool) -> None:
    out = resized_crop(coordinates(4), Rng(seed, "test"), flip, (0.3, 1.0))
    assert out.shape == (4, 3, SIZE, SIZE)
    across = out[:, 0].diff(dim=2)[:, :, 1:-1]  # steps of the source column; the outermost may lie on the edge
    down = out[:, 1].diff(dim=1)[:, 1:-1]
    assert (out[:, 0].diff(dim=1).abs() < 1e-3).all(), "columns stay upright"
    for steps in (across, down):
        assert (steps - steps.mean((1, 2), keepdim=True)).abs().max() < 1e-3, "evenly spaced: nothing from outside"
    area, ratio = across[:, 0, 0].abs() * down[:, 0, 0], across[:, 0, 0].abs() / down[:, 0, 0]
    assert (area > 0.3 - 1e-3).all()
    assert (area < 1 + 1e-3).all()
    assert (ratio > 3 / 4 - 1e-3).all()
    assert (ratio < 4 / 3 + 1e-3).all()
    assert (down > 0).all()
    if not flip:
        assert (across > 0).all()


def test_half_of_the_crops_are_mirrored() -> None:
    out = resized_crop(coordinates(400), Rng(0, "test"), True, (0.3, 1.0))
    mirrored = (out[:, 0, 0, -1] < out[:, 0, 0, 0]).float().mean()
    assert 0.4 < mirrored < 0.6


def test_gray_by_luminance_and_by_chance() -> None:
    x = images(200)
    assert torch.equal(random_grayscale(x, Rng(0, "test"), 0.0), x.float())
    gray = random_grayscale(x, Rng(0, "test"), 1.0)
    assert torch.equal(gray[:, 0], gray[:, 1])
    expected = np.asarray(pil(x[0]).convert("L"), dtype=float)
    assert np.abs(gray[0, 2].numpy() - expected).max() <= 1
    some = random_grayscale(x, Rng(0, "test"), 0.25)
    share = (some[:, 0] == some[:, 1]).all(2).all(1).float().mean()
    assert 0.15 < share < 0.35


def test_turns_are_those_of_numpy() -> None:
    x = images(3)
    assert torch.equal(rotated(x, 1), x)
    out = rotated(x, 4).view(4, 3, 3, SIZE, SIZE)
    for turn in range(4):
        assert np.array_equal(out[turn].numpy(), np.rot90(x.numpy(), turn, (2, 3)))
    with pytest.raises(ValueError, match=r"square.*\(1, 3, 4, 8\)"):
        rotated(torch.zeros(1, 3, 4, 8), 4)


@given(seeds)
def test_rand_augment_keeps_range_and_input_and_follows_its_generator(seed: int) -> None:
    x = images(5, seed)
    before = x.clone()
    out = rand_augment(x, Rng(seed, "test"))
    assert torch.equal(x, before)
    assert out.shape == x.shape
    assert out.min() >= 0
    assert out.max() <= 255
    assert torch.equal(out, rand_augment(x, Rng(seed, "test")))
    assert torch.equal(rand_augment(x, Rng(seed, "test"), n=0), x.float())


def test_rand_augment_uses_all_operations_and_changes_most_images() -> None:
    x = images(1).expand(300, -1, -1, -1)
    out = rand_augment(x, Rng(0, "test"), n=1)
    assert len(torch.unique(out.flatten(1), dim=0)) >= len(OPERATIONS) + 7, "signed operations go both ways"
    assert (rand_augment(x, Rng(0, "test"), n=3) != x).flatten(1).any(1).float().mean() > 0.95


def pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


REFERENCES = {
    "_brightness": lambda image, s: ImageEnhance.Brightness(image).enhance(1 + 0.9 * s),
    "_colour": lambda image, s: ImageEnhance.Color(image).enhance(1 + 0.9 * s),
    "_contrast": lambda image, s: ImageEnhance.Contrast(image).enhance(1 + 0.9 * s),
    "_posterize": lambda image, s: ImageOps.posterize(image, 8 - round(4 * abs(s))),
    "_solarize": lambda image, s: ImageOps.solarize(image, 255 * (1 - abs(s))),
    "_autocontrast": lambda image, s: ImageOps.autocontrast(image),
    "_equalize": lambda image, s: ImageOps.equalize(image),
    "_rotate": lambda image, s: image.rotate(30 * s, Image.Resampling.BILINEAR),
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("strength", [-0.5, 0.5, 1.0])
def test_operations_are_those_of_pil(name: str, strength: float) -> None:
    x = images(2, seed=3, size=256)  # so large that PIL's equalising in whole steps does not show
    ours = getattr(module, name)(x.float(), torch.full((2,), strength)).clamp(0, 255)
    for image, got in zip(x, ours, strict=True):
        expected = np.asarray(REFERENCES[name](pil(image), strength), dtype=float).transpose(2, 0, 1)
        gap = np.abs(got.numpy() - expected)
        if name == "_rotate":
            gap = gap[:, 64:-64, 64:-64]  # PIL fills the corners with black
        assert gap.max() <= 2


def test_moves_and_shears_look_up_shifted_coordinates() -> None:
    x, s = coordinates(1).float(), torch.full((1,), 0.5)
    middle = SIZE // 2
    moved = module._translate_x(x, s)[0, 0, middle]
    assert torch.allclose(moved[:10], torch.arange(10) + 0.225 * SIZE, atol=1e-3)
    assert torch.allclose(
        module._translate_y(x, -s)[0, 1, -10:, 0], torch.arange(SIZE - 10, SIZE) - 0.225 * SIZE, atol=1e-3
    )
    sheared = module._shear_x(x, s)[0, 0, :, middle]
    assert torch.allclose(sheared.diff()[4:-4], torch.full((SIZE - 9,), 0.15), atol=1e-3)
    assert torch.allclose(module._shear_y(x, s)[0, 1, middle].diff()[4:-4], torch.full((SIZE - 9,), 0.15), atol=1e-3)


def test_a_plain_channel_has_nothing_to_equalise() -> None:
    x = torch.full((1, 3, 4, 4), 77.0)
    assert torch.equal(module._equalize(x, torch.ones(1)), x)
    assert torch.equal(module._autocontrast(x, torch.ones(1)), x)
