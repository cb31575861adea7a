"""Random augmentation of batches. All random numbers come from the generator argument.

All methods use `augment`: a shift and a flip, as one gather of uint8 pixels. The others are stronger, for methods that
compare views of an image. They take pixels in 0..255 and return floats in 0..255. The edge pixels are the padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # brightness of red, green and blue (ITU-R BT.601)


def augment(x: Tensor, rng: np.random.Generator, flip: bool, shift: float = 0.125) -> Tensor:
    """(B, 3, H, W) uint8 -> the same, each image shifted by up to `shift` of its side and flipped with probability ½.

    The result is in channels_last memory format.
    """
    return augment_each([x], rng, flip, shift)


def augment_each(batches: Sequence[Tensor], rng: np.random.Generator, flip: bool, shift: float = 0.125) -> Tensor:
    """The concatenated batches, with the same result as `augment` on each in turn."""
    x = torch.cat(list(batches)) if len(batches) > 1 else batches[0]
    b, _, height, width = x.shape
    moves = [_moves(len(batch), round(shift * height), round(shift * width), flip, rng) for batch in batches]
    down, right, mirrored = (np.concatenate(parts)[:, None] for parts in zip(*moves, strict=True))  # (B, 1)
    rows = (np.arange(height) + down).clip(0, height - 1)  # (B, H) source row of each row
    columns = (np.arange(width) + right).clip(0, width - 1)  # (B, W)
    columns = np.where(mirrored, columns[:, ::-1], columns)
    lines = (np.arange(b)[:, None] * height + rows) * width
    pixels = (torch.from_numpy(lines)[:, :, None] + torch.from_numpy(columns)[:, None]).flatten().to(x.device)
    picked = x.permute(0, 2, 3, 1).reshape(-1, 3).index_select(0, pixels)  # 3 times as fast as x[...]
    return picked.view(b, height, width, 3).permute(0, 3, 1, 2)


def _moves(b: int, down: int, right: int, flip: bool, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """(b,) vertical shift, (b,) horizontal shift, (b,) flipped or not."""
    moved = rng.integers(-down, down + 1, b), rng.integers(-right, right + 1, b)
    return *moved, rng.random(b) < 0.5 if flip else np.zeros(b, dtype=bool)


def resized_crop(x: Tensor, rng: np.random.Generator, flip: bool, scale: tuple[float, float]) -> Tensor:
    """(B, 3, H, W) -> a random crop of each image, `scale` of its area, 3:4 to 4:3, resized to (H, W)."""
    b = len(x)
    area = rng.uniform(*scale, b)
    ratio = np.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3), b))
    across, down = np.sqrt(area * ratio).clip(max=1), np.sqrt(area / ratio).clip(max=1)  # fractions of the sides
    theta = np.zeros((b, 2, 3))  # output coordinates in -1..1 -> input coordinates
    theta[:, 0, 2] = rng.uniform(-1, 1, b) * (1 - across)
    theta[:, 1, 2] = rng.uniform(-1, 1, b) * (1 - down)
    mirrored = rng.random(b) < 0.5 if flip else np.zeros(b, dtype=bool)
    theta[:, 0, 0] = np.where(mirrored, -across, across)
    theta[:, 1, 1] = down
    return _warp(x.float(), torch.from_numpy(theta).float().to(x.device))


def random_grayscale(x: Tensor, rng: np.random.Generator, p: float) -> Tensor:
    """(B, 3, H, W) -> the same, each image in grayscale with probability p."""
    x = x.float()
    chosen = torch.from_numpy(rng.random(len(x)) < p).to(x.device)
    return torch.where(chosen[:, None, None, None], _gray(x), x)


def rotated(x: Tensor, turns: int) -> Tensor:
    """(B, 3, S, S) -> (turns B, 3, S, S): all images, then all rotated by 90 degrees, by 180, ..."""
    if turns > 1 and x.shape[2] != x.shape[3]:
        raise ValueError(f"rotation needs square images, not {tuple(x.shape)}")
    return torch.cat([x.rot90(turn, (2, 3)) for turn in range(turns)])


def rand_augment(x: Tensor, rng: np.random.Generator, n: int = 3, magnitude: float = 0.5) -> Tensor:
    """(B, 3, H, W) -> the same after n random operations, drawn for each image (RandAugment, Cubuk et al. 2020).

    Magnitude 0.5 is 15 on the usual scale of 30. The sign of an operation is random.
    """
    x = x.float().clone()
    for _ in range(n):
        drawn = torch.from_numpy(rng.integers(len(OPERATIONS), size=len(x)))
        strength = torch.from_numpy(magnitude * rng.choice([-1.0, 1.0], len(x))).float().to(x.device)
        for index in torch.unique(drawn).tolist():
            rows = (drawn == index).nonzero()[:, 0]
            x[rows] = OPERATIONS[index](x[rows], strength[rows]).clamp(0, 255)
    return x


# -- operations: (n, 3, H, W) float and a strength (n,) in -1..1 -> (n, 3, H, W), clamped by the caller ------------


def _identity(x: Tensor, s: Tensor) -> Tensor:
    return x


def _shear_x(x: Tensor, s: Tensor) -> Tensor:
    return _affine(x, shear_x=0.3 * s)


def _shear_y(x: Tensor, s: Tensor) -> Tensor:
    return _affine(x, shear_y=0.3 * s)


def _translate_x(x: Tensor, s: Tensor) -> Tensor:
    return _affine(x, translate_x=0.9 * s)  # 0.45 of the width: coordinates span 2


def _translate_y(x: Tensor, s: Tensor) -> Tensor:
    return _affine(x, translate_y=0.9 * s)


def _rotate(x: Tensor, s: Tensor) -> Tensor:
    angle = math.radians(30) * s
    # Coordinates are relative to the sides: without their ratio, a rotation would shear.
    ratio = x.shape[2] / x.shape[3]
    return _affine(x, scale=angle.cos(), shear_x=-angle.sin() * ratio, shear_y=angle.sin() / ratio)


def _brightness(x: Tensor, s: Tensor) -> Tensor:
    return _away_from(torch.zeros_like(x), x, s)


def _colour(x: Tensor, s: Tensor) -> Tensor:
    return _away_from(_gray(x), x, s)


def _contrast(x: Tensor, s: Tensor) -> Tensor:
    return _away_from(_gray(x).mean((1, 2, 3), keepdim=True), x, s)


def _sharpness(x: Tensor, s: Tensor) -> Tensor:
    return _away_from(F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1), x, s)


def _posterize(x: Tensor, s: Tensor) -> Tensor:
    step = 2.0 ** (4 * s.abs()).round()[:, None, None, None]  # up to the 4 lowest of 8 bits are dropped
    return (x / step).floor() * step


def _solarize(x: Tensor, s: Tensor) -> Tensor:
    return torch.where(x >= 255 * (1 - s.abs())[:, None, None, None], 255 - x, x)


def _autocontrast(x: Tensor, s: Tensor) -> Tensor:
    """Stretch each channel to 0..255."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) * 255 / (high - low).clamp_min(1e-6), x)


def _equalize(x: Tensor, s: Tensor) -> Tensor:
    """Histogram equalisation of each channel."""
    values = x.round().long().flatten(2)  # (n, 3, HW)
    counts = x.new_zeros(*x.shape[:2], 256).scatter_add(2, values, torch.ones_like(values, dtype=x.dtype))
    brightest = counts.gather(2, values.amax(2, keepdim=True))  # (n, 3, 1)
    below = (counts.cumsum(2) - counts).gather(2, values)  # number of darker pixels
    ranks = below / (values.shape[2] - brightest).clamp_min(1)  # the darkest 0, the brightest 1
    flat = brightest == values.shape[2]  # a single value
    return torch.where(flat, x.flatten(2), 255 * ranks).view_as(x)


OPERATIONS: list[Callable[[Tensor, Tensor], Tensor]] = [
    _identity,
    _shear_x,
    _shear_y,
    _translate_x,
    _translate_y,
    _rotate,
    _brightness,
    _colour,
    _contrast,
    _sharpness,
    _posterize,
    _solarize,
    _autocontrast,
    _equalize,
]


def _away_from(reference: Tensor, x: Tensor, s: Tensor) -> Tensor:
    """Interpolate towards (s < 0) or extrapolate away from `reference`, by up to 0.9."""
    return reference + (1 + 0.9 * s)[:, None, None, None] * (x - reference)


def _gray(x: Tensor) -> Tensor:
    return (x * x.new_tensor(LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True).expand_as(x)


def _affine(
    x: Tensor,
    scale: Tensor | float = 1.0,
    shear_x: Tensor | float = 0.0,
    shear_y: Tensor | float = 0.0,
    translate_x: Tensor | float = 0.0,
    translate_y: Tensor | float = 0.0,
) -> Tensor:
    theta = x.new_zeros(len(x), 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = scale
    theta[:, 0, 1], theta[:, 1, 0] = shear_x, shear_y
    theta[:, 0, 2], theta[:, 1, 2] = translate_x, translate_y
    return _warp(x, theta)


def _warp(x: Tensor, theta: Tensor) -> Tensor:
    """Bilinear sampling: theta (B, 2, 3) maps output coordinates to input coordinates."""
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
