"""Clients by their addresses: turns, and the share of each in memory and in requests that wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import anyio
import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message

from dhocl.service import arriving
from dhocl.service.addresses import RoundRobin
from dhocl.service.arriving import Bodies
from tests.helpers.serving import Client


def test_round_robin() -> None:
    waiting: RoundRobin[int] = RoundRobin()
    for address, item in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)]:
        waiting.add(address, item)
    assert waiting.remove("c", 5)
    assert not waiting.remove("c", 5)
    assert not waiting.remove("a", 4)
    found = []
    while waiting:
        found.append(waiting.first())
        assert waiting.pop() == found[-1]
    assert found == [1, 4, 2, 6, 3]
    assert not waiting.remove("a", 3)


def held(stack: ExitStack, bodies: Bodies, address: str, sizes: list[int]) -> list[int]:
    """Statuses of bodies of one address, 200 if they are taken. They are complete, and stay until the stack ends."""

    async def use() -> list[int]:
        found = []
        for size in sizes:

            async def receive(size: int = size) -> Message:
                return {"type": "http.request", "body": bytes(size)}

            body = stack.enter_context(bodies.arriving(receive, 100, address))
            try:
                await body.receive()
                found.append(200)
            except HTTPException as problem:
                body.taken, body.complete = 0, False  # as if it were answered
                found.append(problem.status_code)
        return found

    return anyio.run(use)


def test_an_address_has_at_most_as_many_requests_as_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "COMPLETE", 12)
    bodies = Bodies(100)
    with ExitStack() as stack:
        assert held(stack, bodies, "a", 8 * [1]) == 6 * [200] + 2 * [429]
        assert held(stack, bodies, "b", 4 * [1]) == 3 * [200] + [429]
        assert held(stack, bodies, "c", 2 * [1]) == [200, 429]
        assert held(stack, bodies, "d", 2 * [1]) == [200, 429]


def test_an_address_has_at_most_as_much_memory_as_is_free() -> None:
    bodies = Bodies(100)
    with ExitStack() as stack:
        assert held(stack, bodies, "a", 6 * [100]) == 4 * [200] + 2 * [429]
        assert held(stack, bodies, "b", 3 * [100]) == 2 * [200] + [429]
        assert held(stack, bodies, "c", [50, 50, 50]) == [200, 200, 429]


def test_a_request_without_a_body_has_no_room_to_make() -> None:
    """Such as one that listens to events. To choose it would change nothing, and the search would not end."""

    async def use() -> None:
        async def receive() -> Message:
            return {"type": "http.request", "body": bytes(100)}

        bodies = Bodies(100)
        with bodies.arriving(receive, 100), ExitStack() as stack:
            for _ in range(4):
                await stack.enter_context(bodies.arriving(receive, 100)).receive()
            with pytest.raises(HTTPException, match="too many"):
                await stack.enter_context(bodies.arriving(receive, 100)).receive()

    anyio.run(use)


@contextmanager
def sees(client: Client) -> Iterator[list[str]]:
    """Addresses of the requests."""
    found: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        original = Bodies.arriving
        patch.setattr(Bodies, "arriving", lambda *given: found.append(given[3]) or original(*given))
        yield found


def test_a_proxy_on_this_machine_passes_the_address_on(fresh: Client) -> None:
    with sees(fresh) as found:
        fresh.get("/health")
        fresh.get("/health", headers={"X-Forwarded-For": "2001:db8::1"})
        with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2"), base_url=fresh.base_url) as other:
            other.get("/health", headers={"X-Forwarded-For": "10.0.0.1"})
    assert found == ["127.0.0.1", "2001:db8::", "127.0.0.2"]
