"""News for whoever listens, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

LISTENERS = 100
BACKLOG = 1000  # events that may wait for a listener: who is slower than that is cut off, and may come again
SILENCE = 15.0  # seconds after which a comment shows that the line is up


class Live:
    """Made and listened to in the event loop's thread; `send` may be called from any."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: set[asyncio.Queue[str | None]] = set()
        self._closed = False

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def listeners(self) -> int:
        return len(self._queues)

    def send(self, news: Iterable[tuple[str, Any]]) -> None:
        """(event, data) each."""
        if self._loop is not None and not self._loop.is_closed() and self._queues:
            texts = [f"event: {event}\ndata: {json.dumps(data)}\n\n" for event, data in news]
            self._loop.call_soon_threadsafe(self._deliver, texts)

    def close(self) -> None:
        """End all streams, now and later."""
        self._closed = True
        for queue in self._queues:
            _end(queue)

    async def stream(self) -> AsyncIterator[str]:
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._queues.add(queue)
        try:
            yield ": welcome\n\n"
            while not self._closed:
                try:
                    text = await asyncio.wait_for(queue.get(), SILENCE)
                except TimeoutError:
                    text = ": still here\n\n"
                if text is None:
                    return
                yield text
        finally:
            self._queues.discard(queue)

    def _deliver(self, texts: list[str]) -> None:
        for queue in self._queues:
            if queue.qsize() + len(texts) > BACKLOG:
                _end(queue)
            else:
                for text in texts:
                    queue.put_nowait(text)


def _end(queue: asyncio.Queue[str | None]) -> None:
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
