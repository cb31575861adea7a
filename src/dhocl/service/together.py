"""Requests that wait together are handled by one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

from dhocl.service.addresses import RoundRobin

T = TypeVar("T")
R = TypeVar("R")


class Together(Generic[T, R]):
    """Calls a function in a thread, with all items that wait. While it runs, further items gather.

    If they are too many for a call, the addresses that they come from take turns.

    An exception is raised for all items of the call.

    Args:
        handle: items -> a result for each.
        size: of an item.
        most: sum of the sizes in a call; a single item may be larger.
    """

    def __init__(self, handle: Callable[[list[T]], list[R]], size: Callable[[T], int], most: int) -> None:
        self._handle = handle
        self._size = size
        self._most = most
        self._waiting: RoundRobin[tuple[T, asyncio.Future[R]]] = RoundRobin()
        self._working: asyncio.Task[None] | None = None
        self._thread = anyio.CapacityLimiter(1)

    async def __call__(self, item: T, address: str = "") -> R:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.add(address, (item, future))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        try:
            while self._waiting:
                items, futures = zip(*self._next(), strict=True)
                await self._call(list(items), list(futures))
        finally:
            self._working = None

    def _next(self) -> list[tuple[T, asyncio.Future[R]]]:
        chosen = [self._waiting.pop()]
        total = self._size(chosen[0][0])
        while self._waiting and total + self._size(self._waiting.first()[0]) <= self._most:
            chosen.append(self._waiting.pop())
            total += self._size(chosen[-1][0])
        return chosen

    async def _call(self, items: list[T], futures: list[asyncio.Future[R]]) -> None:
        try:
            results = await anyio.to_thread.run_sync(self._handle, items, limiter=self._thread)
            found = list(zip(futures, results, strict=True))
        except Exception as error:
            for future in futures:
                if not future.done():  # cancelled
                    future.set_exception(error)
            return
        for future, result in found:
            if not future.done():
                future.set_result(result)
