"""Connections with limits: a client that does not send or does not read is disconnected, and chunks are not parsed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dhocl.service.addresses import address_of

MOST = 400  # connections at once, before those that wait for their clients are closed
BUSY = 800  # requests at once, before a new one is answered 503; those of closed connections end a little later
REQUEST = 10.0  # seconds until the headers of the next request must be complete
STOPPING = 3  # seconds for requests in progress when the service stops
READING = 30.0  # seconds within which a client must read what is buffered for it


class Parser(h11.Connection):
    """Parses no body in chunks. All chunks that were received together would be parsed without a break.

    In 256 KiB, there may be 43,000 of them. They would take most of a second.
    """

    chunked = False  # the request that is not parsed any further. `Guard` refuses it, and the connection is closed

    def next_event(self) -> Any:
        if self.chunked:
            return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        return event


class Connection(H11Protocol):
    """A connection of uvicorn with time limits.

    If there are too many connections, one that waits for its client makes room for a new one: of the address that has
    the most connections, the one that has waited longest.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.conn = self._parser = Parser(h11.SERVER)
        self._address = ""
        self._since = self.loop.time()  # of the connection or its last response
        self._request_timer: asyncio.TimerHandle | None = None
        self._reading_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MOST:
            self._make_room()
        super().connection_made(transport)
        self._address = address_of({"client": self.client})
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._request_timer, self._reading_timer):
            if timer:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        if not self._parser.chunked:
            super().data_received(data)

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
            held = Counter(other._address for other in others)
            oldest = max(waiting, key=lambda other: (held[other._address], -other._since))
            self.connections.discard(oldest)
            oldest.transport.abort()
