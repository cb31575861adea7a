"""Bodies that arrive nearly to their end and then stall. They must not use up the memory for all bodies."""

from __future__ import annotations

import select
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.helpers.machine import slowness
from tests.helpers.serving import NEW, examples, post, settled, started, until
from tests.service.test_slow_clients import connected, drip, many_connected

ONE_MB = [*NEW, "--image-mb", 1]
MOST = 4 * 2**20  # bytes of a body with it
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEAD += b"Content-Length: %d\r\n\r\n" % MOST
STALLED = HEAD + bytes(MOST - 100)


@pytest.mark.parametrize("dripping", [False, True], ids=["silent", "dripping"])
def test_stalled_bodies_make_room_for_others(tmp_path: Path, dripping: bool) -> None:
    stopped = Event()
    with (
        started("--model", tmp_path / "m", *ONE_MB) as (_, client),
        many_connected(client, 8, STALLED) as lines,
        ExitStack() as stack,
    ):

        def go_on() -> None:
            while dripping and not stopped.wait(0.5):
                for line in lines:
                    with suppress(ConnectionError):
                        line.sendall(b" ")

        thread = Thread(target=go_on)
        thread.start()
        stack.callback(thread.join)
        stack.callback(stopped.set)

        def room_was_made() -> bool:
            began = time.monotonic()
            assert post(client, examples(8)).status_code == 202
            assert time.monotonic() - began < 5 * slowness()
            return bool(select.select(lines, [], [], 0)[0])  # one of them is answered

        time.sleep(2)  # until all that was sent has arrived
        until(room_was_made, 30)
        assert room_was_made()
        assert settled(client)["learned"] > 0


def test_a_body_that_stalls_is_refused_however_much_of_it_is_there(tmp_path: Path) -> None:
    with (
        started("--model", tmp_path / "m", *ONE_MB, constants={"arriving.PATIENCE": 1.0}) as (_, client),
        connected(client) as line,
    ):
        line.sendall(STALLED)
        line.settimeout(20)
        assert b" 408 " in line.recv(1000)


def test_the_time_of_a_body_is_bounded_however_steadily_it_arrives(tmp_path: Path) -> None:
    steady = {"arriving.LONGEST": 3.0, "arriving.STEP": 1, "connections.REQUEST": 1.0}
    with (
        started("--model", tmp_path / "m", *ONE_MB, constants=steady) as (_, client),
        connected(client) as line,
    ):
        line.sendall(HEAD)
        assert b" 408 " in drip(line, b" ")
