"""Time limits of connections: a client that does not send or does not read is disconnected."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 400  # connections at once, before those that wait for their clients are closed
BUSY = 800  # requests at once, before a new one is answered 503; those of closed connections end a little later
REQUEST = 10.0  # seconds until the headers of the next request must be complete
STOPPING = 3  # seconds for requests in progress when the service stops
READING = 30.0  # seconds within which a client must read what is buffered for it


class Connection(H11Protocol):
    """A connection of uvicorn with time limits.

    If there are too many connections, the one that has waited longest for its client makes room for a new one.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._since = self.loop.time()  # of the connection or its last response
        self._request_timer: asyncio.TimerHandle | None = None
        self._reading_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MOST:
            self._make_room()
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._request_timer, self._reading_timer):
            if timer:
                timer.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading_timer = self.loop.call_later(READING, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading_timer:
            self._reading_timer.cancel()

    def shutdown(self) -> None:
        """Let a request in progress end, and close the connection before uvicorn cancels the request."""
        super().shutdown()
        self.loop.call_later(STOPPING - 0.5, self.transport.abort)

    @property
    def _answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect_request(self) -> None:
        """Single bytes do not extend this time, other than that of keep-alive."""
        if self._request_timer:
            self._request_timer.cancel()
        self._since = self.loop.time()
        self._request_timer = self.loop.call_later(REQUEST, self._end_if_answered)

    def _end_if_answered(self) -> None:
        if self._answered:
            self.transport.abort()

    def _make_room(self) -> None:
        others = [other for other in self.connections if isinstance(other, Connection)]
        waiting = [other for other in others if other._answered or other.cycle.more_body]
        if waiting:
            oldest = min(waiting, key=lambda other: other._since)
            self.connections.discard(oldest)
            oldest.transport.abort()
