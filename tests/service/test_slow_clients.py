"""Clients that do not send, send too slowly or do not read."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from dhocl.service import arriving, connections, live
from tests.helpers.serving import NEW, Client, started, until

EVENTS = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"


def connected(client: httpx.Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=60)


@contextmanager
def many_connected(client: httpx.Client, count: int, says: bytes = b"") -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        lines = [stack.enter_context(connected(client)) for _ in range(count)]
        for line in lines:
            line.sendall(says)
        yield lines


def closed(line: socket.socket) -> bool:
    """Whether the service has disconnected, whatever it sent before."""
    with suppress(ConnectionError):
        while line.recv(10_000):
            pass
    return True


def drip(line: socket.socket, byte: bytes) -> bytes:
    """Send a byte every tenth of a second until the service disconnects; what it answered."""
    answer = b""
    line.settimeout(0.1)
    with suppress(ConnectionError):
        for _ in range(600):
            line.sendall(byte)
            with suppress(TimeoutError):
                answer += line.recv(1000)
        raise AssertionError("it was never disconnected")
    return answer


@pytest.mark.parametrize("says", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n", HEAD], ids=["silent", "head", "body"])
def test_clients_that_wait_do_not_keep_others_out(tmp_path: Path, says: bytes) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with started("--model", tmp_path / "m", *NEW) as (_, client), many_connected(client, 505, says):
        for _ in range(20):
            assert httpx.get(f"{client.base_url}/health", timeout=60).status_code == 200


def test_headers_have_a_time_limit_that_single_bytes_do_not_extend(
    fresh: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST", 1.0)
    with connected(fresh) as silent, connected(fresh) as slow:
        assert drip(slow, b"G") == b""
        assert closed(silent)


def test_a_body_that_drips_ends_with_408(fresh: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "PATIENCE", 0.5)
    monkeypatch.setattr(connections, "REQUEST", 1.0)
    with connected(fresh) as line:
        line.sendall(HEAD)
        assert b" 408 " in drip(line, b"[")


def test_a_connection_between_requests_is_closed(fresh: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST", 1.0)
    with connected(fresh) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in line.recv(1000)
        assert closed(line)


def test_a_request_may_take_longer_than_its_headers(fresh: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST", 0.2)
    with connected(fresh) as line:
        line.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: b"welcome" in line.recv(1000))
        line.settimeout(1.0)
        with pytest.raises(TimeoutError):
            line.recv(1000)


def test_listeners_that_never_read_are_disconnected(fresh: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """More is sent than fits into the buffers of the system, so that it waits in the service."""
    monkeypatch.setattr(connections, "READING", 1.0)
    with many_connected(fresh, 5, EVENTS):
        until(lambda: fresh.service.live.listeners == 5)
        for _ in range(200):
            fresh.service.live.send([("metrics", "x" * 100_000)])
        until(lambda: fresh.service.live.listeners == 0, 60)


def test_100_listeners_that_never_read_do_not_keep_others_out(tmp_path: Path) -> None:
    guaranteed = {"live.GUARANTEED": 10.0}
    with (
        started("--model", tmp_path / "m", *NEW, constants=guaranteed) as (_, client),
        many_connected(client, 100, EVENTS),
    ):

        def listens() -> bool:
            with client.stream("GET", "/events") as stream:
                return stream.status_code == 200 and next(stream.iter_lines()) == ": welcome"

        until(lambda: not listens(), 10)
        until(listens, 60)


def test_silent_listeners_make_room_for_others(fresh: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LISTENERS", 5)
    with many_connected(fresh, 5, EVENTS) as lines:
        until(lambda: fresh.service.live.listeners == 5)
        assert fresh.get("/events").status_code == 429, "they are guaranteed a minute"
        monkeypatch.setattr(live, "GUARANTEED", 0.0)
        with fresh.stream("GET", "/events") as stream:
            lines_read = stream.iter_lines()
            assert next(lines_read) == ": welcome"
            assert fresh.service.live.listeners == 5
            fresh.service.live.send([("metrics", 1)])
            assert "event: metrics" in lines_read
        monkeypatch.setattr(connections, "REQUEST", 0.1)
        assert closed(lines[0])
