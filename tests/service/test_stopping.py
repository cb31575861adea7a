"""SIGTERM under load: the process ends within five seconds, and nothing that was accepted is lost."""

from __future__ import annotations

import signal
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.helpers.machine import slowness
from tests.helpers.serving import NEW, examples, post, settled, started, until

LONGEST = 5.0  # seconds, on a usual machine
HEAD = (
    b"POST /observations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
)
EVENTS = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Poster(threading.Thread):
    """Posts until the service is gone, and counts what was accepted."""

    def __init__(self, address: str, seed: int) -> None:
        super().__init__()
        self._address = address
        self._given = examples(16, seed)
        self.accepted = 0
        self.answers: list[int] = []

    def run(self) -> None:
        with httpx.Client(base_url=self._address, timeout=60) as client:
            try:
                while True:
                    answer = post(client, self._given)
                    self.answers.append(answer.status_code)
                    self.accepted += len(self._given) * (answer.status_code == 202)
            except httpx.HTTPError:
                return


def test_it_stops_in_time_under_load(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as log, ExitStack() as stack:
        process, client = stack.enter_context(started("--model", tmp_path / "m", *NEW, stderr=log))
        place = (client.base_url.host, client.base_url.port or 80)
        posters = [Poster(str(client.base_url), seed) for seed in range(4)]
        for poster in posters:
            poster.start()
        for says in [EVENTS] * 20 + [HEAD] * 20 + [HEAD + b"{"] * 5 + [b"GET / HT"] * 5 + [b""] * 5:
            line = stack.enter_context(socket.create_connection(place))
            line.sendall(says)  # and it never reads
        until(lambda: client.get("/metrics").json()["learned"] > 32)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        assert time.monotonic() - began < LONGEST * slowness()
        for poster in posters:
            poster.join()
        log.seek(0)
        said = log.read()
    assert "stop: " in said
    assert "Traceback" not in said, said
    assert {code for poster in posters for code in poster.answers} <= {202, 429, 503}
    with started("--model", tmp_path / "m") as (_, client):
        numbers = settled(client)
    accepted = sum(poster.accepted for poster in posters)
    assert accepted <= numbers["learned"] <= accepted + 16 * len(posters), "a response may be lost, an entry not"
