"""Turns for work that needs much memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio

from dhocl.service.addresses import RoundRobin


class BusyError(Exception):
    """A request would wait too long for its turns."""


class Patience:
    """The seconds that a request may wait, for all of its turns together."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """BusyError when they are over."""
        began = anyio.current_time()
        try:
            with anyio.fail_after(self._left):
                yield
        except TimeoutError:
            raise BusyError from None
        self._left -= anyio.current_time() - began


class Line:
    """Lets some at once have a turn. The addresses of those that wait take turns."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: RoundRobin[anyio.Event] = RoundRobin()

    @asynccontextmanager
    async def turn(self, patience: Patience, address: str = "") -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            await self._wait(patience, address)
        try:
            yield
        finally:
            self._end()

    async def _wait(self, patience: Patience, address: str) -> None:
        own = anyio.Event()
        self._waiting.add(address, own)
        try:
            with patience.waiting():
                await own.wait()
        except BaseException:
            if not self._waiting.remove(address, own):  # the turn came at the same moment
                self._end()
            raise

    def _end(self) -> None:
        if self._waiting:
            self._waiting.pop().set()
        else:
            self._free += 1
