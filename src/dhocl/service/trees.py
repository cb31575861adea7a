"""Responses about the tree. They are made once for each of its versions, however many clients ask for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import anyio
from anyio.to_thread import run_sync
from fastapi.responses import JSONResponse, Response, StreamingResponse

from dhocl.core.events import Event
from dhocl.service import reports
from dhocl.service.served import Snapshot

PART = 2**16  # bytes that are sent at once: more would wait in memory for a client that does not read


class TreeContent:
    """JSON of the whole tree. Requests that come while it is made wait for it, without a thread each."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._lock = anyio.Lock()
        self._made_of: tuple[int, Event | None] | None = None
        self._content = b""

    async def get(self) -> bytes:
        async with self._lock:
            snapshot = self._snapshot()
            if (state := _state(snapshot)) != self._made_of:
                self._content = await run_sync(lambda: _json(reports.tree(snapshot)))
                self._made_of = state
            return self._content


class EventsContent:
    """JSON of the changes of the tree. Each change is converted once."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._lock = anyio.Lock()
        self._last: Event | None = None
        self._texts: list[bytes] = []

    async def get(self, since: int) -> bytes:
        async with self._lock:
            snapshot = self._snapshot()
            if _state(snapshot) != (len(self._texts), self._last):
                await run_sync(self._follow, snapshot)
            return b'{"version":%d,"events":[%b]}' % (len(self._texts), b",".join(self._texts[since:]))

    def _follow(self, snapshot: Snapshot) -> None:
        events, known = snapshot.taxonomy.events, len(self._texts)
        if known > len(events) or (known and events[known - 1] != self._last):  # the model of an earlier checkpoint
            self._texts, known = [], 0
        new = reports.tree_events(snapshot, known)["events"]
        self._texts += map(_json, new)
        self._last = _state(snapshot)[1]


def in_parts(content: bytes) -> Response:
    """A response with JSON of any length."""
    headers = {"Content-Length": str(len(content))}
    return StreamingResponse(_parts(content), media_type="application/json", headers=headers)


async def _parts(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), PART):
        yield content[start : start + PART]


def _state(snapshot: Snapshot) -> tuple[int, Event | None]:
    events = snapshot.taxonomy.events
    return len(events), events[-1] if len(events) else None


def _json(value: object) -> bytes:
    return bytes(JSONResponse(value).body)
