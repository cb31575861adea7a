"""Request bodies while they arrive: limits of their size, their time, their number and the memory of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

HELD = 8  # limit of all bodies in memory, in bodies of the largest size
COMPLETE = 128  # requests whose bodies are complete and that are not answered yet; far fewer than connections
PATIENCE = 30.0  # seconds for each STEP of a body
STEP = 300_000  # bytes
LONGEST = 600.0  # seconds for a body


class Body:
    """The body of a request.

    Args:
        receive: of the request.
        most: bytes.
        address: of the client.
        bodies: those in memory.
    """

    def __init__(self, receive: Receive, most: int, address: str, bodies: Bodies) -> None:
        self._receive = receive
        self._most = most
        self.address = address
        self._bodies = bodies
        self._began = self._advanced = anyio.current_time()  # the latter: when the last step was complete
        self._next = STEP  # bytes that complete the next one
        self._waiting = anyio.CancelScope()
        self._makes_room = False
        self.taken = 0
        self.complete = False

    async def receive(self) -> Message:
        """The next message. HTTPException if the body is refused."""
        if self.complete:  # the next message is the end of the connection
            return await self._receive()
        deadline = min(self._advanced + PATIENCE, self._began + LONGEST)
        with anyio.CancelScope(deadline=deadline) as self._waiting:
            message = await self._receive()
        if self._makes_room:
            raise _too_many()
        if self._waiting.cancelled_caught:
            raise HTTPException(408, "the body arrives too slowly")
        self.complete = not message.get("more_body", False)
        if taken := self.taken + len(message.get("body", b"")):  # a request without a body takes no room
            self._take(taken)
        return message

    def make_room(self) -> None:
        """Refuse it. Its memory is free at once."""
        self._makes_room, self.taken = True, 0
        self._waiting.cancel()

    @property
    def waste(self) -> float:
        """Bytes in memory times the seconds that they have waited for more."""
        return self.taken * (anyio.current_time() - self._advanced)

    @property
    def unanswered(self) -> bool:
        """Whether it is complete, and in memory until its request is answered."""
        return self.complete and self.taken > 0

    def _take(self, taken: int) -> None:
        self.taken = taken
        if self.taken > self._most:
            raise HTTPException(413, f"the request has more than {self._most} bytes")
        if self.taken >= self._next:
            self._advanced, self._next = anyio.current_time(), self.taken + STEP
        self._bodies.fit(self)


class Bodies:
    """All bodies in memory. An address may have at most as many bytes, and complete bodies, as are free.

    So one client can not take the room of others, and many leave some to each.

    Args:
        most: bytes of the largest body.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: set[Body] = set()

    @contextmanager
    def arriving(self, receive: Receive, most: int, address: str = "") -> Iterator[Body]:
        """A body of at most `most` bytes. It is in memory until the request is answered."""
        body = Body(receive, most, address, self)
        self._held.add(body)
        try:
            yield body
        finally:
            self._held.discard(body)

    def fit(self, newest: Body) -> None:
        """Refuse it if there are too many. If there is too little memory, a body that arrives slowly makes room."""
        own = [body for body in self._held if body.address == newest.address]
        if sum(body.unanswered for body in own) > COMPLETE - sum(body.unanswered for body in self._held):
            raise _too_many()
        while sum(body.taken for body in own) > HELD * self._most - sum(body.taken for body in self._held):
            arriving = (body for body in own if body.taken and not body.complete)
            slow = max(arriving, key=lambda body: body.waste, default=newest)
            if slow is newest:
                raise _too_many()
            slow.make_room()


def _too_many() -> HTTPException:
    return HTTPException(429, "too many requests at once", {"Retry-After": "1"})
