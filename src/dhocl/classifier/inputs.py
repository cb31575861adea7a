"""What people give as images, as tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dhocl.core.errors import InputError
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
