"""Decode and resize images."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps, JpegImagePlugin, UnidentifiedImageError
from rich.console import Console
from rich.progress import track
from torch.nn.functional import interpolate

from dhocl.core.errors import InputError

T = TypeVar("T")

IMAGES_AT_ONCE = 1024  # images resized at once, to bound memory
JPEG = b"\xff\xd8\xff"  # its first bytes
HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")  # brands of HEIC files
LONG = 500  # images from which on a progress bar is shown: about two seconds


def square(source: Path | BytesIO | Image.Image, size: int, what: str, cut: int = 0) -> np.ndarray:
    """(size, size, 3) uint8: the image upright, in RGB, scaled to cover the square, center-cropped.

    The last `cut` pixel rows of the original are removed first.
    """
    try:
        with nullcontext(source) if isinstance(source, Image.Image) else _opened(source, what) as image:
            height = image.height
            image.draft(None, (2 * size, 2 * size))  # decodes a JPEG of 4 times the size or more at a part of its size
            upright = _rgb(ImageOps.exif_transpose(image))
            if cut:
                kept = upright.height - math.ceil(cut * image.height / height)
                upright = upright.crop((0, 0, upright.width, kept))
            return np.asarray(ImageOps.fit(upright, (size, size), Image.Resampling.BICUBIC))
    except FileNotFoundError:
        raise InputError(f"{what} is missing: put it back") from None
    except (InputError, MemoryError):  # the latter says nothing about the image
        raise
    except Exception:  # the decoders of PIL may raise anything
        raise InputError(f"{what} is damaged or of an unknown image format: replace it") from None


def _opened(source: Path | BytesIO, what: str) -> Image.Image:
    """Open an image. A JPEG may be of any size, because it is decoded at a part of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            return Image.open(source)
        except Image.DecompressionBombError:
            if _start(source)[:3] != JPEG:
                raise InputError(f"{what} has too many pixels: scale it down, or save it as a JPEG") from None
            return JpegImagePlugin.JpegImageFile(source)
        except UnidentifiedImageError:
            start = _start(source)
            if start[4:8] != b"ftyp" or start[8:12] not in HEIF:
                raise
            _register_heif(what)
            return Image.open(source)


def _start(source: Path | BytesIO) -> bytes:
    """The first bytes of a file."""
    if isinstance(source, BytesIO):
        source.seek(0)
        return source.getvalue()[:12]
    with source.open("rb") as file:
        return file.read(12)


def _register_heif(what: str) -> None:
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise InputError(f"{what} is a HEIC image, which needs pillow-heif: pip install 'dhocl[heic]'") from None
    register_heif_opener()


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


def _rgb(image: Image.Image) -> Image.Image:
    """Any mode as RGB; transparent pixels become white."""
    if image.mode.startswith("I;16"):  # PIL would clip 16-bit grey instead of scaling it
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
    for start in range(0, len(pixels), IMAGES_AT_ONCE):
        chunk = torch.from_numpy(pixels[start : start + IMAGES_AT_ONCE]).permute(0, 3, 1, 2)
        scaled = interpolate(chunk, size=(size, size), mode="bicubic", antialias=True)
        resized[start : start + IMAGES_AT_ONCE] = scaled.permute(0, 2, 3, 1).numpy()
    return resized


def with_progress(items: Iterable[T], total: int, what: str) -> Iterable[T]:
    """The items, with a transient progress bar if there are many and stderr is a terminal."""
    console = Console(stderr=True)
    silent = total < LONG or not console.is_terminal
    return track(items, what, total=total, console=console, transient=True, disable=silent)
