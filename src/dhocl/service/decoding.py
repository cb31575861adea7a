"""Decoding in processes of their own: limited in memory, and ended if they take too long.

So an image can neither use up the memory of the service, nor crash it, nor keep it busy for long.
"""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_process

from dhocl.core.errors import InputError
from dhocl.service import images
from dhocl.service.images import SizeRefusedError
from dhocl.service.turns import Line, Patience

T = TypeVar("T")
Work = Callable[[bytes, int, int, str], T]

SMALL = 4_000_000  # pixels; larger images wait for one another, and small ones do not wait for them
SMALL_AT_ONCE = 2
MEMORY = 768 * 2**20  # bytes of a process; an image of 25 megapixels takes up to about 400
SECONDS = 5  # of processor time for an image
WAIT = 10.0  # seconds that a request may wait for its turns
PAUSE = 0.5  # seconds before another attempt
PATIENCE = 60.0  # seconds until an answer must be there, on a busy machine


class Decoder:
    """Decodes images in turn, of one address after the other. Small ones do not wait for large ones.

    Args:
        size: side in pixels of the images that the model learns.
        most: largest number of pixels of an image.
    """

    def __init__(self, size: int, most: int) -> None:
        self._size = size
        self._most = most
        self._small = Line(SMALL_AT_ONCE)
        self._large = Line(1)
        self._processes = anyio.CapacityLimiter(SMALL_AT_ONCE + 1)  # nobody waits for it: whoever has a turn gets one

    async def start(self) -> None:
        """Start a process before the first image.

        Processes live as long as the task that starts the first. In Ray Serve, no task but that of the lifespan
        outlives its request: each would end the processes of all.
        """
        await anyio.to_process.run_sync(os.getpid, limiter=self._processes)

    async def decode(self, contents: list[bytes], address: str = "") -> list[images.Decoded]:
        """InputError if one of them is refused, BusyError if they wait too long for their turns."""
        return await self._each(images.decode, contents, address)

    async def pixels(self, contents: list[bytes], address: str = "") -> list[bytes]:
        """The same, without copies for display."""
        return await self._each(images.pixels, contents, address)

    async def _each(self, work: Work[T], contents: list[bytes], address: str = "") -> list[T]:
        """One at a time, so that requests with many or slow images let others through."""
        patience, found = Patience(WAIT), []
        for place, content in enumerate(contents):
            found.append(await self._one(work, content, f"image {place}", patience, address))
        return found

    async def _one(self, work: Work[T], content: bytes, what: str, patience: Patience, address: str) -> T:
        async with self._small.turn(patience, address):
            try:
                return await self._run(work, content, min(SMALL, self._most), what)
            except SizeRefusedError:
                if self._most <= SMALL:
                    raise
        async with self._large.turn(patience, address):
            return await self._run(work, content, self._most, what)

    async def _run(self, work: Work[T], content: bytes, most: int, what: str, again: bool = True) -> T:
        given = (work, MEMORY, SECONDS, content, self._size, most, what)
        began = time.monotonic()
        try:
            with anyio.fail_after(PATIENCE):
                return await anyio.to_process.run_sync(_limited, *given, cancellable=True, limiter=self._processes)
        except (TimeoutError, anyio.BrokenWorkerProcess):
            if not again or time.monotonic() - began >= min(SECONDS, PATIENCE):
                raise InputError(
                    f"{what} takes too long to decode, or crashes the decoder, or memory is short: save it anew"
                ) from None
        except OSError as error:  # no process can be started
            raise MemoryError(f"no process to decode {what}: {error.strerror}") from None
        await anyio.sleep(PAUSE)  # it ended before its time, perhaps because memory was short
        return await self._run(work, content, most, what, again=False)


def _limited(work: Work[T], memory: int, seconds: int, content: bytes, size: int, most: int, what: str) -> T:
    """In the process that decodes. The system ends it when its time is over, and first of all when memory is short."""
    _set_limit(resource.RLIMIT_DATA, memory)
    _set_limit(resource.RLIMIT_CPU, math.ceil(time.process_time()) + seconds)
    with suppress(OSError):  # only on Linux
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        return work(content, size, most, what)
    except MemoryError:
        raise InputError(f"{what} takes too much memory to decode: reduce its size") from None


def _set_limit(which: int, value: int) -> None:
    """Set a limit of this process. One that it has already is kept, if it is stricter and can not be raised."""
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
