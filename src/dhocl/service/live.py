"""Server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple

LISTENERS = 100  # connections at once
GUARANTEED = 60.0  # seconds; an older connection may be closed to make room for a new one
BACKLOG = 1000  # events queued for a client; a slower client is disconnected and may reconnect
SILENCE = 15.0  # seconds without events after which a keep-alive comment is sent


class Listener(NamedTuple):
    address: str
    since: float  # time of connection


class Live:
    """Distributes events to all connected clients. Only `send` may be called outside of the event loop's thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: dict[asyncio.Queue[str | None], Listener] = {}  # oldest first
        self._closed = False

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def listeners(self) -> int:
        return len(self._queues)

    def make_room(self, address: str) -> bool:
        """Whether one more client may connect. Another may be disconnected for it.

        That of an address with more clients than the new one's, or else the oldest: perhaps it never reads.
        """
        if len(self._queues) < LISTENERS:
            return True
        held = Counter(listener.address for listener in self._queues.values())
        most = max(held.values())
        if most > held[address] + 1:
            self._end(next(queue for queue, listener in self._queues.items() if held[listener.address] == most))
            return True
        oldest, listener = next(iter(self._queues.items()))
        if time.monotonic() < listener.since + GUARANTEED:
            return False
        self._end(oldest)
        return True

    def send(self, news: Iterable[tuple[str, Any]]) -> None:
        """Send pairs (event, data) to all clients."""
        if self._loop is not None and not self._loop.is_closed() and self._queues:
            texts = [f"event: {event}\ndata: {json.dumps(data)}\n\n" for event, data in news]
            self._loop.call_soon_threadsafe(self._deliver, texts)

    def close(self) -> None:
        """End all streams, and every later one at once."""
        self._closed = True
        for queue in list(self._queues):
            self._end(queue)

    async def stream(self, address: str) -> AsyncIterator[str]:
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._queues[queue] = Listener(address, time.monotonic())
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
            self._queues.pop(queue, None)

    def _deliver(self, texts: list[str]) -> None:
        for queue in list(self._queues):
            if queue.qsize() + len(texts) > BACKLOG:
                self._end(queue)
            else:
                for text in texts:
                    queue.put_nowait(text)

    def _end(self, queue: asyncio.Queue[str | None]) -> None:
        """End a stream. Its place is free at once, though its last message may still wait to be read."""
        self._queues.pop(queue, None)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)
