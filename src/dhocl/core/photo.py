"""Photographs of any format as arrays. This module is imported without PyTorch, by processes that only decode."""

from __future__ import annotations

import math
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from dhocl.core.errors import InputError


def square(source: Path | BytesIO | Image.Image, size: int, what: str, cut: int = 0) -> np.ndarray:
    """(size, size, 3) uint8: the image upright, in RGB, scaled to cover the square, center-cropped.

    The last `cut` pixel rows of the original are removed first.
    """
    try:
        with nullcontext(source) if isinstance(source, Image.Image) else Image.open(source) as image:
            height = image.height
            image.draft(None, (2 * size, 2 * size))  # decodes a large JPEG at reduced size, which is faster
            upright = _rgb(ImageOps.exif_transpose(image))
            if cut:
                kept = upright.height - math.ceil(cut * image.height / height)
                upright = upright.crop((0, 0, upright.width, kept))
            return np.asarray(ImageOps.fit(upright, (size, size), Image.Resampling.BICUBIC))
    except FileNotFoundError:
        raise InputError(f"{what} is missing: put it back") from None
    except MemoryError:  # says nothing about the image
        raise
    except Exception:  # the decoders of PIL may raise anything
        raise InputError(f"{what} is damaged or of an unknown image format: replace it") from None


def _rgb(image: Image.Image) -> Image.Image:
    """Any mode as RGB; transparent pixels become white."""
    if image.mode.startswith("I;16"):  # PIL would clip 16-bit grey instead of scaling it
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")
