"""Decode untrusted images. Format and size are checked by the header, before decoding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import NamedTuple

from PIL import Image

from dhocl.core.errors import InputError
from dhocl.core.photo import square

MAGIC = {"JPEG": b"\xff\xd8\xff", "PNG": b"\x89PNG\r\n\x1a\n"}
SCANS = 32  # of a progressive JPEG; each costs time even if it is empty. Encoders write about 10
SEGMENTS = 1000  # of a JPEG, with scans; metadata in many segments take quadratic time
CHUNKS = 20_000  # of a PNG; encoders write one for 8 kB or more
THUMBNAIL = 96  # least side in pixels of the copy for display


class TypeRefusedError(InputError):
    """The image is neither JPEG nor PNG nor WebP."""


class SizeRefusedError(InputError):
    """The image has more bytes, pixels or parts than allowed."""


class Decoded(NamedTuple):
    """What is kept of an image."""

    pixels: bytes  # size * size * 3: what the model learns
    thumbnail: bytes  # a JPEG for display, without metadata or other bytes of the original


def kind(content: bytes) -> str | None:
    """The image format by its first bytes; no other decoder is used."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "WEBP"
    return next((name for name, magic in MAGIC.items() if content.startswith(magic)), None)


def pixels(content: bytes, size: int, most: int, what: str = "the image") -> bytes:
    """size * size * 3 bytes. An image of more than `most` pixels is refused."""
    return square(_opened(content, most, what), size, what).tobytes()


def decode(content: bytes, size: int, most: int, what: str = "the image") -> Decoded:
    """The pixels of an image, and a copy of it for display."""
    image = _opened(content, most, what)
    array = square(image, size, what)
    shown = array if size >= THUMBNAIL else square(image, THUMBNAIL, what)
    file = BytesIO()
    Image.fromarray(shown).save(file, "JPEG", quality=80)
    return Decoded(array.tobytes(), file.getvalue())


def markers(content: bytes) -> Iterator[int]:
    """Codes of the markers of a JPEG up to its end, without decoding. What a segment contains does not count."""
    place = 2
    while found := _MARKER.search(content, place):
        place, code = found.end(), content[found.end() - 1]
        yield code
        if code == _END:
            break
        if code >= _FIRST_WITH_LENGTH and code != _START:
            place += int.from_bytes(content[place : place + 2], "big")


def chunks(content: bytes) -> Iterator[bytes]:
    """Names of the chunks of a PNG, without decoding."""
    place = len(MAGIC["PNG"])
    while len(name := content[place + 4 : place + 8]) == 4:
        yield name
        place += 12 + int.from_bytes(content[place : place + 4], "big")


_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # neither a byte of data, nor padding, nor a restart
_START, _END, SCAN, _FIRST_WITH_LENGTH = 0xD8, 0xD9, 0xDA, 0xC0


def _check_parts(content: bytes, name: str, what: str) -> None:
    """Refuse an image of so many parts that they would cost seconds. Counting ends at the limit."""
    if name == "JPEG":
        each = list(islice(markers(content), SEGMENTS + 1))
        if each.count(SCAN) > SCANS:
            raise SizeRefusedError(f"{what} has more than {SCANS} scans: save it as a baseline JPEG")
        if len(each) > SEGMENTS:
            raise SizeRefusedError(f"{what} has more than {SEGMENTS} segments: save it without metadata")
    if name == "PNG" and sum(1 for _ in islice(chunks(content), CHUNKS + 1)) > CHUNKS:
        raise SizeRefusedError(f"{what} has more than {CHUNKS} chunks: save it without metadata")


def _opened(content: bytes, most: int, what: str) -> Image.Image:
    """Open an image. Only its header is read."""
    name = kind(content)
    if name is None:
        raise TypeRefusedError(f"{what} is neither JPEG nor PNG nor WebP: convert it")
    _check_parts(content, name, what)
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
