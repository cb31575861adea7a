"""Clients that do not send, send too slowly or do not read."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from dhocl.service import connections, live
from tests.helpers.serving import NEW, Client, examples, post, settled, started, until
from tests.service.test_fairness import client_of

ESTABLISHED = "01"  # of /proc/net/tcp
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
EVENTS = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"


def connected(client: httpx.Client) -> socket.socket:
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that what is not read soon waits in the service
    line.settimeout(60)
    line.connect((client.base_url.host, client.base_url.port or 80))
    return line


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


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service with short time limits, in a process of its own."""
    limits = {"connections.REQUEST": 1.0, "arriving.PATIENCE": 0.5}
    with started("--model", tmp_path_factory.mktemp("impatient") / "m", *NEW, constants=limits) as (_, client):
        yield client


def test_headers_have_a_time_limit_that_single_bytes_do_not_extend(impatient: httpx.Client) -> None:
    with connected(impatient) as silent, connected(impatient) as slow, connected(impatient) as later:
        later.sendall(HEALTH)
        assert b"200 OK" in later.recv(1000)
        assert drip(slow, b"G") == b""
        assert closed(silent)
        assert b"400" not in drip(later, b"G"), "also after a response"


def test_a_body_that_drips_ends_with_408(impatient: httpx.Client) -> None:
    with connected(impatient) as line:
        line.sendall(HEAD)
        assert b" 408 " in drip(line, b"[")


def test_a_request_may_take_longer_than_its_headers(impatient: httpx.Client) -> None:
    with connected(impatient) as line:
        line.sendall(EVENTS)
        until(lambda: b"welcome" in line.recv(1000))
        line.settimeout(3.0)
        with pytest.raises(TimeoutError):
            line.recv(1000)


def test_a_connection_between_requests_is_closed(tmp_path: Path) -> None:
    patient = {"connections.REQUEST": 600.0}
    with started("--model", tmp_path / "m", *NEW, constants=patient) as (_, client), connected(client) as line:
        line.sendall(HEALTH)
        assert b"200 OK" in line.recv(1000)
        began = time.monotonic()
        assert closed(line)
        assert time.monotonic() - began > 4, "it can be used again for some seconds"


def held(client: httpx.Client, lines: Sequence[socket.socket]) -> int:
    """How many of these connections the service has not closed. What it sent may still wait to be read."""
    own, others = client.base_url.port or 80, {line.getsockname()[1] for line in lines}
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = [(int(row[1].split(":")[1], 16), int(row[2].split(":")[1], 16)) for row in rows if row[3] == ESTABLISHED]
    return sum(port == own and other in others for port, other in ports)


def post_and_read(client: httpx.Client, received: Iterator[str]) -> int:
    """Post 64 observations with the longest names, so with large events, and read these. Returns their number."""
    assert post(client, [(image, f"{name:\u4e00<200}", rank) for image, name, rank in examples(64)]).status_code == 202
    read = 0
    for line in received:
        read += line == "event: observation"
        if read == 64 and line == "event: metrics":
            break
    return read


def test_listeners_that_never_read_are_disconnected(tmp_path: Path) -> None:
    """More is sent than fits into the buffers of the system, so that it waits in the service."""
    limits = {"connections.READING": 1.0, "live.BACKLOG": 10**9}
    with (
        started("--model", tmp_path / "m", *NEW, constants=limits) as (_, client),
        many_connected(client, 5, EVENTS) as lines,
        client.stream("GET", "/events") as other,
    ):
        received = other.iter_lines()
        assert next(received) == ": welcome"
        assert held(client, lines) == 5

        def none_held() -> bool:
            assert post_and_read(client, received) == 64, "this one reads"
            return held(client, lines) == 0

        until(none_held, 120)


def test_a_listener_that_is_too_many_events_behind_is_disconnected(tmp_path: Path) -> None:
    """Its place is free at once. What it was sent before can still be read, and is not all."""
    limits = {"connections.READING": 600.0, "live.BACKLOG": 100, "live.LISTENERS": 2, "live.GUARANTEED": 600.0}
    with (
        started("--model", tmp_path / "m", *NEW, constants=limits) as (_, client),
        many_connected(client, 1, EVENTS) as lines,
        client.stream("GET", "/events") as other,
    ):
        received = other.iter_lines()
        assert next(received) == ": welcome"
        events = 0

        def listens() -> bool:
            with client.stream("GET", "/events") as stream:
                return stream.status_code == 200

        def makes_room() -> bool:
            nonlocal events
            events += post_and_read(client, received)
            return listens()

        assert not listens(), "both places are taken"
        until(makes_room, 120)
        text = b""
        while part := lines[0].recv(2**20):
            text += part
        assert 0 < text.count(b"event: observation") < events
        assert post_and_read(client, received) == 64, "the one that reads goes on"


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


def test_listeners_do_not_count_as_requests_with_a_body(tmp_path: Path) -> None:
    """Each response in parts waits for the end of its connection, as a body waits for more."""
    log = tmp_path / "log"
    with (
        log.open("w") as errors,
        started("--model", tmp_path / "m", *NEW, stderr=errors) as (process, client),
        many_connected(client, 90, EVENTS) as lines,
    ):
        for line in lines:
            until(lambda line=line: b"welcome" in line.recv(1000))
        assert post(client, examples(8)).status_code == 202
        settled(client)
        assert client.post("/predict", files={"image": ("x.png", examples(1)[0][0])}).status_code == 200
        stored = client.get("/checkpoint")
        assert stored.status_code == 200
        assert len(stored.content) == int(stored.headers["content-length"])
        process.terminate()
        process.wait()
    assert "Traceback" not in log.read_text()


def test_an_address_with_many_listeners_makes_room_for_another(tmp_path: Path) -> None:
    few = {"live.LISTENERS": 5, "live.GUARANTEED": 600.0}
    with (
        started("--model", tmp_path / "m", *NEW, constants=few) as (_, client),
        client_of(client.base_url, "127.0.0.2") as other,
        many_connected(client, 5, EVENTS) as lines,
    ):
        for line in lines:
            until(lambda line=line: b"welcome" in line.recv(1000))
        with other.stream("GET", "/events") as first, other.stream("GET", "/events") as second:
            assert (first.status_code, second.status_code) == (200, 200)
            with other.stream("GET", "/events") as third:
                assert third.status_code == 429, "it would have as many as the first address"
        for line in lines[:2]:
            assert closed(line), "the oldest two"


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
