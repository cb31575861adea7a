"""A thread for what takes long beside predictions: to compare, to rank, and to compute features of stored images."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio.to_thread import run_sync

from dhocl.service.turns import Line, Patience

R = TypeVar("R")

WAIT = 10.0  # seconds that a request may wait for its turn
REST = 2.0  # seconds without work for each second of it: predictions and learning need the processor, too


class Aside:
    """Does one thing at a time, with rests. The addresses that wait take turns."""

    def __init__(self) -> None:
        self._line = Line(1)
        self._thread = anyio.CapacityLimiter(1)
        self._rested = -math.inf  # time from which on it may work

    async def __call__(self, work: Callable[[], R], address: str = "") -> R:
        """BusyError if a request waits too long. What has no address is not of one client, and waits."""
        async with self._line.turn(Patience(WAIT if address else math.inf), address):
            await anyio.sleep_until(self._rested)
            began = anyio.current_time()
            try:
                return await run_sync(work, limiter=self._thread)
            finally:
                self._rested = anyio.current_time() + REST * (anyio.current_time() - began)
