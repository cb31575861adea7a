"""Bodies in chunks, without a length. Each chunk costs time of the event loop, however small it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import anyio
import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message

from dhocl.service.arriving import Bodies
from tests.helpers.machine import slowness
from tests.helpers.serving import NEW, Client, started
from tests.service.test_slow_clients import connected

CHUNKS = 50_000 * b"1\r\nx\r\n"  # 300 kB: more than is received at once
CHUNKED = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextmanager
def sending(client: httpx.Client, path: bytes, clients: int) -> Iterator[None]:
    """Clients that send chunks of one byte, and connect again when they are disconnected."""
    stop = Event()

    def send() -> None:
        while not stop.is_set():
            with suppress(OSError), connected(client) as line:
                line.settimeout(5)
                line.sendall(CHUNKED % path)
                while not stop.is_set():
                    line.sendall(CHUNKS)

    with ThreadPoolExecutor(clients) as pool:
        try:
            for _ in range(clients):
                pool.submit(send)
            yield
        finally:
            stop.set()


@pytest.mark.parametrize("path", [b"/predict", b"/taxonomy"], ids=["open", "without the token"])
def test_tiny_chunks_do_not_delay_others(tmp_path: Path, path: bytes) -> None:
    (tmp_path / "token").write_text("a-long-enough-token")
    options = [*NEW, "--token-file", tmp_path / "token"]
    with started("--model", tmp_path / "m", *options) as (_, client), sending(client, path, 4):
        time.sleep(1)
        began, seconds = time.monotonic(), []
        while time.monotonic() < began + 5:
            asked = time.monotonic()
            assert client.get("/health").status_code == 200
            seconds.append(time.monotonic() - asked)
            time.sleep(0.05)
        assert max(seconds) < slowness()


@pytest.mark.parametrize("method", ["POST", "GET", "PATCH"])
def test_a_body_without_a_length_is_refused_and_the_client_can_read_why(fresh: Client, method: str) -> None:
    """The body is larger than what the system buffers, so that it can not be sent whole."""

    def chunks() -> Iterator[bytes]:
        for _ in range(1000):
            yield bytes(20_000)

    answer = fresh.request(method, "/predict", content=chunks(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["connection"]) == (411, "close")
    assert answer.json() == {"detail": "send the request with Content-Length, not in chunks"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert 'route="/predict",status="411"' in fresh.get("/metrics?format=prometheus").text or method != "POST"


def test_nothing_after_a_refused_body_is_parsed(fresh: Client) -> None:
    with connected(fresh) as line:
        line.sendall(CHUNKED % b"/predict" + b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while part := line.recv(10_000):
            answer += part
        assert answer.startswith(b"HTTP/1.1 411 ")
        assert answer.count(b"HTTP/1.1 ") == 1


def test_a_body_that_is_longer_than_its_length_is_limited() -> None:
    """As other servers may pass it on."""

    async def use() -> None:
        async def receive() -> Message:
            return {"type": "http.request", "body": bytes(1000), "more_body": True}

        with Bodies(10_000).arriving(receive, 2500) as body:
            await body.receive()
            await body.receive()
            with pytest.raises(HTTPException, match="more than 2500 bytes"):
                await body.receive()

    anyio.run(use)
