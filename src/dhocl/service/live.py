"""Server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

LISTENERS = 100  # connections at once
BACKLOG = 1000  # events queued for a client; a slower client is disconnected and may reconnect
SILENCE = 15.0  # seconds without events after which a keep-alive comment is sent


class Live:
    """Distributes events to all connected clients. Only `send` may be called outside of the event loop's thread."""

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
        """Send pairs (event, data) to all clients."""
        if self._loop is not None and not self._loop.is_closed() and self._queues:
            texts = [f"event: {event}\ndata: {json.dumps(data)}\n\n" for event, data in news]
            self._loop.call_soon_threadsafe(self._deliver, texts)

    def close(self) -> None:
        """End all streams, and every later one at once."""
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
