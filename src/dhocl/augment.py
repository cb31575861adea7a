"""Random crop and flip of a whole batch as one gather: no padding, no image touched by Python."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def augment(x: Tensor, rng: np.random.Generator, flip: bool, shift: float = 0.125) -> Tensor:
    """(B, 3, H, W) uint8 -> the same, each image moved by up to `shift` of its side and mirrored half of the time.

    What moves in from outside repeats the edge. The result lies in channels_last order, as the backbones like it.
    """
    b, _, height, width = x.shape
    rows = _window(b, height, round(shift * height), rng)
    columns = _window(b, width, round(shift * width), rng)
    if flip:
        mirrored = torch.from_numpy(rng.random(b) < 0.5)
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    picked = x[torch.arange(b)[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # (B, H, W, 3)
    return picked.permute(0, 3, 1, 2)


def _window(b: int, size: int, reach: int, rng: np.random.Generator) -> Tensor:
    """(b, size) source indices along one side."""
    offsets = torch.from_numpy(rng.integers(-reach, reach + 1, b))
    return (torch.arange(size) + offsets[:, None]).clamp(0, size - 1)
