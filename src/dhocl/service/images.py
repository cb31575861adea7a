"""Images from strangers: what they are is seen by their first bytes, and how large before they are decoded."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from dhocl.data.images import square
from dhocl.errors import InputError

MAGIC = {"JPEG": b"\xff\xd8\xff", "PNG": b"\x89PNG\r\n\x1a\n"}
THUMBNAIL = 96  # pixels


class TypeRefusedError(InputError):
    """Neither JPEG nor PNG nor WebP."""


class SizeRefusedError(InputError):
    """More bytes or pixels than allowed."""


def kind(content: bytes) -> str | None:
    """The one decoder that may see it."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "WEBP"
    return next((name for name, magic in MAGIC.items() if content.startswith(magic)), None)


def pixels(content: bytes, size: int, most: int, what: str = "the image") -> np.ndarray:
    """(size, size, 3) uint8; `most` pixels may be decoded."""
    return square(_opened(content, most, what), size, what)


def thumbnail(content: bytes, most: int) -> bytes:
    """A small JPEG of our own making: nothing of what was sent but its picture."""
    array = pixels(content, THUMBNAIL, most)
    file = BytesIO()
    Image.fromarray(array).save(file, "JPEG", quality=80)
    return file.getvalue()


def _opened(content: bytes, most: int, what: str) -> Image.Image:
    """The header alone is read here."""
    name = kind(content)
    if name is None:
        raise TypeRefusedError(f"{what} is neither JPEG nor PNG nor WebP")
    try:
        image = Image.open(BytesIO(content), formats=[name])
    except Image.DecompressionBombError:
        raise SizeRefusedError(f"{what} has more than {most} pixels") from None
    except Exception:  # PIL's parsers raise whatever they stumble over
        raise InputError(f"{what} is damaged") from None
    if image.width * image.height > most:
        raise SizeRefusedError(f"{what} has {image.width} x {image.height} pixels: at most {most} are taken")
    return image
