"""Decoding in processes of their own: limited in memory, and ended if they take too long.

So an image can neither use up the memory of the service, nor crash it, nor keep it busy for long.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_process

from dhocl.service import images
from dhocl.service.images import SizeRefusedError

T = TypeVar("T")
Work = Callable[[bytes, int, int, str], T]

PROCESSES = 2
MEMORY = 768 * 2**20  # bytes of a process; an image of 25 megapixels takes up to about 400
SECONDS = 10.0  # for an image


class Decoder:
    """Decodes images in turn, in the order in which they were given.

    Args:
        size: side in pixels of the images that the model learns.
        most: largest number of pixels of an image.
    """

    def __init__(self, size: int, most: int) -> None:
        self._size = size
        self._most = most
        self._turn = anyio.CapacityLimiter(PROCESSES)
        self._processes = anyio.CapacityLimiter(PROCESSES)  # nobody waits for it: whoever has a turn gets one

    async def decode(self, contents: list[bytes]) -> list[images.Decoded]:
        """InputError if one of them is refused."""
        return await self._each(images.decode, contents)

    async def pixels(self, contents: list[bytes]) -> list[bytes]:
        """The same, without copies for display."""
        return await self._each(images.pixels, contents)

    async def _each(self, work: Work[T], contents: list[bytes]) -> list[T]:
        """One at a time, so that requests with many or slow images let others through."""
        return [await self._one(work, content, f"image {place}") for place, content in enumerate(contents)]

    async def _one(self, work: Work[T], content: bytes, what: str) -> T:
        async with self._turn:
            try:
                with anyio.fail_after(SECONDS):
                    given = (work, MEMORY, content, self._size, self._most, what)
                    return await anyio.to_process.run_sync(_limited, *given, cancellable=True, limiter=self._processes)
            except TimeoutError:
                raise SizeRefusedError(f"{what} takes more than {SECONDS:.0f} s to decode: save it anew") from None
            except anyio.BrokenWorkerProcess:
                raise SizeRefusedError(f"{what} can not be decoded: save it anew") from None


def _limited(work: Work[T], memory: int, content: bytes, size: int, most: int, what: str) -> T:
    """In the process that decodes."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, resource.RLIM_INFINITY))
    try:
        return work(content, size, most, what)
    except MemoryError:
        raise SizeRefusedError(f"{what} takes too much memory to decode: reduce its size") from None
