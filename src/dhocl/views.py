"""Stronger views of images than `augment` gives, for methods that learn by comparing views.

Whole batches, pixels on 0..255 in and float pixels on 0..255 out, every draw from the generator handed in. As in
`augment`, what moves in from outside repeats the edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue look


def resized_crop(x: Tensor, rng: np.random.Generator, flip: bool, scale: tuple[float, float]) -> Tensor:
    """(B, 3, H, W) -> a window of each image, `scale` of its area, 3:4 to 4:3, brought back to (H, W)."""
    b = len(x)
    area = rng.uniform(*scale, b)
    ratio = np.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3), b))
    across, down = np.sqrt(area * ratio).clip(max=1), np.sqrt(area / ratio).clip(max=1)  # shares of the sides
    theta = np.zeros((b, 2, 3))  # output coordinates on -1..1 -> where to look
    theta[:, 0, 2] = rng.uniform(-1, 1, b) * (1 - across)
    theta[:, 1, 2] = rng.uniform(-1, 1, b) * (1 - down)
    mirrored = rng.random(b) < 0.5 if flip else np.zeros(b, dtype=bool)
    theta[:, 0, 0] = np.where(mirrored, -across, across)
    theta[:, 1, 1] = down
    return _warp(x.float(), torch.from_numpy(theta).float())


def grayed(x: Tensor, rng: np.random.Generator, p: float) -> Tensor:
    """(B, 3, H, W) -> the same, each image without its colours with probability p."""
    x = x.float()
    return torch.where(torch.from_numpy(rng.random(len(x)) < p)[:, None, None, None], _gray(x), x)


def turned(x: Tensor, turns: int) -> Tensor:
    """(B, 3, S, S) -> (turns B, 3, S, S): all images as they are, then all turned by 90 degrees, by 180, ..."""
    if turns > 1 and x.shape[2] != x.shape[3]:
        raise ValueError(f"only square images can be turned, got {tuple(x.shape)}")
    return torch.cat([x.rot90(turn, (2, 3)) for turn in range(turns)])


def rand_augment(x: Tensor, rng: np.random.Generator, n: int = 3, magnitude: float = 0.5) -> Tensor:
    """(B, 3, H, W) -> the same after n random operations, drawn for each image (RandAugment, Cubuk et al. 2020).

    Magnitude 0.5 is 15 of the 30 that is usual to write; which way an operation goes is random.
    """
    x = x.float().clone()
    for _ in range(n):
        drawn = torch.from_numpy(rng.integers(len(OPERATIONS), size=len(x)))
        strength = torch.from_numpy(magnitude * rng.choice([-1.0, 1.0], len(x))).float()
        for index in torch.unique(drawn).tolist():
            rows = (drawn == index).nonzero()[:, 0]
            x[rows] = OPERATIONS[index](x[rows], strength[rows]).clamp(0, 255)
    return x


# -- operations: (n, 3, H, W) float and a strength (n,) on -1..1 -> (n, 3, H, W), clamped by the caller ------------


def _identity(x: Tensor, s: Tensor) -> Tensor:
    return x


def _shear_x(x: Tensor, s: Tensor) -> Tensor:
    return _affine(x, shear_x=0.3 * s)


def _shear_y(x: Tensor, s: Tensor) -> Tensor:
    return _affine(x, shear_y=0.3 * s)


def _move_x(x: Tensor, s: Tensor) -> Tensor:
    return _affine(x, move_x=0.9 * s)  # 0.45 of the width: the sides are 2 long


def _move_y(x: Tensor, s: Tensor) -> Tensor:
    return _affine(x, move_y=0.9 * s)


def _rotate(x: Tensor, s: Tensor) -> Tensor:
    angle = math.radians(30) * s
    # Coordinates are relative to the sides, and a rotation that ignored their ratio would shear.
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


def _stretch(x: Tensor, s: Tensor) -> Tensor:
    """Autocontrast: each channel from its darkest to its brightest over 0..255."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) * 255 / (high - low).clamp_min(1e-6), x)


def _equalize(x: Tensor, s: Tensor) -> Tensor:
    """Each channel's values by their rank, so that all are about equally frequent."""
    values = x.round().long().flatten(2)  # (n, 3, HW)
    counts = x.new_zeros(*x.shape[:2], 256).scatter_add(2, values, torch.ones_like(values, dtype=x.dtype))
    brightest = counts.gather(2, values.amax(2, keepdim=True))  # (n, 3, 1)
    below = (counts.cumsum(2) - counts).gather(2, values)  # pixels darker than this one
    ranks = below / (values.shape[2] - brightest).clamp_min(1)  # the darkest 0, the brightest 1
    flat = brightest == values.shape[2]  # one value alone: nothing to spread
    return torch.where(flat, x.flatten(2), 255 * ranks).view_as(x)


OPERATIONS: list[Callable[[Tensor, Tensor], Tensor]] = [
    _identity,
    _shear_x,
    _shear_y,
    _move_x,
    _move_y,
    _rotate,
    _brightness,
    _colour,
    _contrast,
    _sharpness,
    _posterize,
    _solarize,
    _stretch,
    _equalize,
]


def _away_from(reference: Tensor, x: Tensor, s: Tensor) -> Tensor:
    """The image moved towards (s < 0) or away from a duller version of itself, by up to 0.9."""
    return reference + (1 + 0.9 * s)[:, None, None, None] * (x - reference)


def _gray(x: Tensor) -> Tensor:
    return (x * x.new_tensor(LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True).expand_as(x)


def _affine(
    x: Tensor,
    scale: Tensor | float = 1.0,
    shear_x: Tensor | float = 0.0,
    shear_y: Tensor | float = 0.0,
    move_x: Tensor | float = 0.0,
    move_y: Tensor | float = 0.0,
) -> Tensor:
    theta = x.new_zeros(len(x), 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = scale
    theta[:, 0, 1], theta[:, 1, 0] = shear_x, shear_y
    theta[:, 0, 2], theta[:, 1, 2] = move_x, move_y
    return _warp(x, theta)


def _warp(x: Tensor, theta: Tensor) -> Tensor:
    """Each image looked up where its matrix (2, 3) sends the coordinates of the result."""
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
