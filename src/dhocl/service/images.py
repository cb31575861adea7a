"""Decode untrusted images. Format and size are checked by the header, before decoding."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from dhocl.core.errors import InputError
from dhocl.data.images import square

MAGIC = {"JPEG": b"\xff\xd8\xff", "PNG": b"\x89PNG\r\n\x1a\n"}
THUMBNAIL = 96  # pixels


class TypeRefusedError(InputError):
    """The image is neither JPEG nor PNG nor WebP."""


class SizeRefusedError(InputError):
    """The image has more bytes or pixels than allowed."""


def kind(content: bytes) -> str | None:
    """The image format by its first bytes; no other decoder is used."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "WEBP"
    return next((name for name, magic in MAGIC.items() if content.startswith(magic)), None)


def pixels(content: bytes, size: int, most: int, what: str = "the image") -> np.ndarray:
    """(size, size, 3) uint8. An image of more than `most` pixels is refused."""
    return square(_opened(content, most, what), size, what)


def thumbnail(content: bytes, most: int) -> bytes:
    """A small JPEG, encoded anew: without metadata or other bytes of the original."""
    array = pixels(content, THUMBNAIL, most)
    file = BytesIO()
    Image.fromarray(array).save(file, "JPEG", quality=80)
    return file.getvalue()


def _opened(content: bytes, most: int, what: str) -> Image.Image:
    """Open an image. Only its header is read."""
    name = kind(content)
    if name is None:
        raise TypeRefusedError(f"{what} is neither JPEG nor PNG nor WebP: convert it")
    try:
        image = Image.open(BytesIO(content), formats=[name])
    except Image.DecompressionBombError:
        raise SizeRefusedError(f"{what} has more than {most} pixels") from None
    except MemoryError:  # says nothing about the image
        raise
    except Exception:  # the parsers of PIL may raise anything
        raise InputError(f"{what} is damaged: replace it") from None
    if image.width * image.height > most:
        raise SizeRefusedError(f"{what} has {image.width} x {image.height} pixels: at most {most} are allowed")
    return image
