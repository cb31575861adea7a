"""Photographs of any format as arrays. This module is imported without PyTorch, by processes that only decode."""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, JpegImagePlugin, UnidentifiedImageError

from dhocl.core.errors import InputError
from dhocl.core.places import Cell, Place, Remote, fetched

SPARE = 1.75  # sides of the square that a JPEG must have before it is scaled: a photograph of 375 rows is halved for 96
JPEG = b"\xff\xd8\xff"  # its first bytes
HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")  # brands of HEIC files


def square(source: Place | BytesIO | Image.Image, size: int, what: str, cut: int = 0) -> np.ndarray:
    """(size, size, 3) uint8: the image upright, in RGB, scaled to cover the square, center-cropped.

    The last `cut` pixel rows of the original are removed first.
    """
    try:
        if isinstance(source, (Remote, Cell)):
            source = BytesIO(fetched(source))
        with nullcontext(source) if isinstance(source, Image.Image) else _opened(source, what) as image:
            height = image.height
            enough = math.ceil(SPARE * size)
            image.draft(None, (enough, enough))  # decodes a JPEG at 1/2, 1/4 or 1/8 of its size, if that is enough
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
    """Open an image. A baseline JPEG may be of any size, because it is decoded at a part of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            return Image.open(source)
        except Image.DecompressionBombError:
            image = JpegImagePlugin.JpegImageFile(source) if _start(source)[:3] == JPEG else None
            if image is None or "progressive" in image.info:  # a progressive one is held in memory as a whole
                raise InputError(f"{what} has too many pixels: scale it down, or save it as a baseline JPEG") from None
            return image
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


def _rgb(image: Image.Image) -> Image.Image:
    """Any mode as RGB; transparent pixels become white."""
    if image.mode.startswith("I;16"):  # PIL would clip 16-bit grey instead of scaling it
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")
