"""Images given as files, PIL images or arrays; resizing of many."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.nn.functional import interpolate

from dhocl.core.errors import InputError
from dhocl.core.photo import square

T = TypeVar("T")

IMAGES_AT_ONCE = 1024  # images resized at once, to bound memory
LONG = 500  # images from which on a progress bar is shown: about two seconds


def to_pixels(image: Any, size: int, what: str) -> np.ndarray:
    """A path, a PIL image or an array, (H, W, 3) or (3, H, W) -> (size, size, 3) uint8."""
    if isinstance(image, (str, Path)):
        if not Path(image).is_file():
            raise InputError(f"{what}: there is no file {image}")
        return square(Path(image), size, f"{what} ({image})")
    if isinstance(image, Image.Image):
        return square(image, size, what)
    return square(Image.fromarray(_bytes(np.asarray(image), what)), size, what)


def _bytes(array: np.ndarray, what: str) -> np.ndarray:
    """An array as (H, W, 3) uint8."""
    if array.ndim == 3 and array.shape[0] == 3 and array.shape[2] != 3:  # channels first
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] != 3:
        raise InputError(f"{what} has shape {array.shape}: expected height x width x 3 (RGB)")
    if array.size == 0:
        raise InputError(f"{what} is empty: its shape is {array.shape}")
    if array.dtype != np.uint8:
        if not np.isfinite(array).all():
            raise InputError(f"{what} holds NaN or infinite values")
        if array.min() < 0 or array.max() > 1:
            raise InputError(f"{what} is {array.dtype} outside 0..1: give uint8, or floats from 0 to 1")
        array = (array * 255).round().astype(np.uint8)
    return np.ascontiguousarray(array)


def resize(pixels: np.ndarray, size: int) -> np.ndarray:
    """(n, H, W, 3) uint8 -> (n, size, size, 3) uint8, bicubic and antialiased."""
    if pixels.shape[1:3] == (size, size):
        return pixels
    resized = np.empty((len(pixels), size, size, 3), dtype=np.uint8)
    for start in range(0, len(pixels), IMAGES_AT_ONCE):
        chunk = torch.from_numpy(pixels[start : start + IMAGES_AT_ONCE]).permute(0, 3, 1, 2)
        scaled = interpolate(chunk, size=(size, size), mode="bicubic", antialias=True)
        resized[start : start + IMAGES_AT_ONCE] = scaled.permute(0, 2, 3, 1).numpy()
    return resized


def channels_first(pixels: np.ndarray) -> Tensor:
    """(N, H, W, 3) -> (N, 3, H, W)"""
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).contiguous()


def with_progress(items: Iterable[T], total: int, what: str) -> Iterable[T]:
    """The items, with a transient progress bar if there are many and stderr is a terminal."""
    console = Console(stderr=True)
    silent = total < LONG or not console.is_terminal
    return track(items, what, total=total, console=console, transient=True, disable=silent)
