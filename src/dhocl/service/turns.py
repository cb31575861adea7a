"""Turns for work that needs much memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count

import anyio


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
    """Lets some at once have a turn. Of those that wait, that of the largest weight is next, then the first."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: list[tuple[int, int, anyio.Event]] = []
        self._arrived = count()

    @asynccontextmanager
    async def turn(self, patience: Patience, weight: int = 0) -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            await self._wait(patience, weight)
        try:
            yield
        finally:
            self._end()

    async def _wait(self, patience: Patience, weight: int) -> None:
        own = (-weight, next(self._arrived), anyio.Event())
        self._waiting.append(own)
        try:
            with patience.waiting():
                await own[-1].wait()
        except BaseException:
            if own in self._waiting:
                self._waiting.remove(own)
            else:  # the turn came at the same moment
                self._end()
            raise

    def _end(self) -> None:
        if self._waiting:
            chosen = min(self._waiting)
            self._waiting.remove(chosen)
            chosen[-1].set()
        else:
            self._free += 1
