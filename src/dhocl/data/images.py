"""Images brought to size: encoded ones by PIL, decoded ones as a batch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps
from rich.console import Console
from rich.progress import track
from torch.nn.functional import interpolate

from dhocl.errors import InputError

T = TypeVar("T")

CHUNK = 1024  # images resized at once: bounds the memory
LONG = 500  # images from which on decoding is worth a progress bar: about two seconds


def square(source: Path | BytesIO | Image.Image, size: int, what: str, cut: int = 0) -> np.ndarray:
    """(size, size, 3) uint8: the image upright, in RGB, scaled to cover the square, cropped at its centre.

    The last `cut` pixel rows of the original are left out first.
    """
    try:
        with nullcontext(source) if isinstance(source, Image.Image) else Image.open(source) as image:
            height = image.height
            image.draft(None, (2 * size, 2 * size))  # a JPEG far too large is decoded at a fraction of its size
            upright = _rgb(ImageOps.exif_transpose(image))
            if cut:
                kept = upright.height - math.ceil(cut * image.height / height)
                upright = upright.crop((0, 0, upright.width, kept))
            return np.asarray(ImageOps.fit(upright, (size, size), Image.Resampling.BICUBIC))
    except FileNotFoundError:
        raise InputError(f"{what} is missing: put it back") from None
    except Exception:  # PIL's decoders raise whatever their parsers stumble over
        raise InputError(f"{what} is damaged or of an unknown image format: replace it") from None


def _rgb(image: Image.Image) -> Image.Image:
    """Any mode as RGB; what is transparent becomes white, as on a page."""
    if image.mode.startswith("I;16"):  # PIL would clip 16 bit grey instead of scaling it
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def resize(pixels: np.ndarray, size: int) -> np.ndarray:
    """(n, H, W, 3) uint8 -> (n, size, size, 3) uint8, bicubic and antialiased."""
    if pixels.shape[1:3] == (size, size):
        return pixels
    resized = np.empty((len(pixels), size, size, 3), dtype=np.uint8)
    for start in range(0, len(pixels), CHUNK):
        chunk = torch.from_numpy(pixels[start : start + CHUNK]).permute(0, 3, 1, 2)
        scaled = interpolate(chunk, size=(size, size), mode="bicubic", antialias=True)
        resized[start : start + CHUNK] = scaled.permute(0, 2, 3, 1).numpy()
    return resized


def watched(items: Iterable[T], total: int, what: str) -> Iterable[T]:
    """The items, with a progress bar if there are many and someone watches; it is gone when they are done."""
    console = Console(stderr=True)
    silent = total < LONG or not console.is_terminal
    return track(items, what, total=total, console=console, transient=True, disable=silent)
