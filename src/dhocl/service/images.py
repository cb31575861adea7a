"""Decode untrusted images. Format and size are checked by the header, before decoding.

All decodes of the process share one budget of pixels, which bounds their memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from threading import Condition, Lock

import numpy as np
from PIL import Image

from dhocl.core.errors import InputError
from dhocl.data.images import square

MAGIC = {"JPEG": b"\xff\xd8\xff", "PNG": b"\x89PNG\r\n\x1a\n"}
SCANS = 32  # of a progressive JPEG; each costs time even if it is empty. Encoders write about 10
THUMBNAIL = 96  # pixels
AT_ONCE = 25_000_000  # pixels decoded at once, each of up to about 30 bytes; a larger image is decoded alone


class TypeRefusedError(InputError):
    """The image is neither JPEG nor PNG nor WebP."""


class SizeRefusedError(InputError):
    """The image has more bytes or pixels than allowed."""


class Budget:
    """A number of pixels that threads share. A thread waits until there is room for its image."""

    def __init__(self, pixels: int) -> None:
        self._most = self._free = pixels
        self._turn = Lock()  # only one thread waits for room, so that small images do not overtake a large one for ever
        self._room = Condition()

    @contextmanager
    def taken(self, pixels: int) -> Iterator[None]:
        share = min(pixels, self._most)
        with self._turn, self._room:
            self._room.wait_for(lambda: self._free >= share)
            self._free -= share
        try:
            yield
        finally:
            with self._room:
                self._free += share
                self._room.notify()


DECODING = Budget(AT_ONCE)


def kind(content: bytes) -> str | None:
    """The image format by its first bytes; no other decoder is used."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "WEBP"
    return next((name for name, magic in MAGIC.items() if content.startswith(magic)), None)


def pixels(content: bytes, size: int, most: int, what: str = "the image") -> np.ndarray:
    """(size, size, 3) uint8. An image of more than `most` pixels is refused."""
    if kind(content) == "WEBP":  # its decoder allocates the whole image as soon as it is opened: alone
        with DECODING.taken(AT_ONCE):
            return square(_opened(content, most, what), size, what)
    image = _opened(content, most, what)
    with DECODING.taken(image.width * image.height):
        array = square(image, size, what)
        del image  # its memory is free before another thread decodes
    return array


def thumbnail(content: bytes, most: int, what: str = "the image") -> bytes:
    """A small JPEG, encoded anew: without metadata or other bytes of the original."""
    array = pixels(content, THUMBNAIL, most, what)
    file = BytesIO()
    Image.fromarray(array).save(file, "JPEG", quality=80)
    return file.getvalue()


def scans(content: bytes) -> int:
    """Number of scans of a JPEG up to its end marker, without decoding. What a segment contains does not count."""
    count, place = 0, 2
    while found := _MARKER.search(content, place):
        place, code = found.end(), content[found.end() - 1]
        if code == _END:
            break
        count += code == _SCAN
        if code >= _FIRST_WITH_LENGTH and code != _START:
            place += int.from_bytes(content[place : place + 2], "big")
    return count


_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # neither a byte of data, nor padding, nor a restart
_START, _END, _SCAN, _FIRST_WITH_LENGTH = 0xD8, 0xD9, 0xDA, 0xC0


def _opened(content: bytes, most: int, what: str) -> Image.Image:
    """Open an image. Only its header is read."""
    name = kind(content)
    if name is None:
        raise TypeRefusedError(f"{what} is neither JPEG nor PNG nor WebP: convert it")
    if name == "JPEG" and (found := scans(content)) > SCANS:
        raise SizeRefusedError(f"{what} has {found} scans: at most {SCANS} are allowed, save it as a baseline JPEG")
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
