"""Images and labels as people give them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label
from dhocl.data.folder import find_level
from dhocl.data.images import to_pixels


def as_pixels(images: Any, size: int) -> Tensor:
    """Paths, PIL images, arrays or tensors, one or many -> (n, 3, size, size) uint8."""
    if isinstance(images, Tensor) and images.dtype == torch.uint8 and images.shape[1:] == (3, size, size):
        return images
    single = isinstance(images, (str, Path, Image.Image)) or getattr(images, "ndim", 4) == 3
    given = [images] if single else images
    pixels = [to_pixels(image, size, f"image {place}") for place, image in enumerate(given)]
    if not pixels:
        raise InputError("no image given")
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous()


def as_labels(labels: Iterable[tuple[str, str]], levels: Sequence[str], images: int) -> list[Label]:
    """One label for each image."""
    named = [as_label(label, levels) for label in labels]
    if len(named) != images:
        raise InputError(f"{images} images, but {len(named)} labels: give one label for each image")
    return named


def as_label(label: tuple[str, str], levels: Sequence[str]) -> Label:
    """
    >>> as_label(("robin", "Species"), ("genus", "species"))
    Label(name='robin', level=1)
    """
    if isinstance(label, str) or len(label) != 2:
        raise InputError(f"the label {label!r} is not a pair: write it as (name, level)")
    name, level = label
    if (known := find_level(level, levels)) is None:
        raise InputError(f"{name!r} has the unknown level {level!r}: choose one of {', '.join(levels)}")
    return Label(name, levels.index(known))
