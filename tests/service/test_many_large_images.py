"""Many large images at once, through a process of its own: they cost seconds, and nobody waits longer than allowed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import httpx

from tests.helpers.serving import NEW, examples, post, settled, started
from tests.service.test_one_client import SMALL


def predicted(address: httpx.URL, content: bytes) -> tuple[int, float]:
    """Status and seconds."""
    began = time.monotonic()
    answer = httpx.post(f"{address}/predict", files={"image": ("x", content)}, timeout=600)
    return answer.status_code, time.monotonic() - began


@contextmanager
def repeated(address: httpx.URL, content: bytes, clients: int) -> Iterator[list[Future[list[int]]]]:
    """Clients that post an image again and again. Their results are the statuses."""
    stop = Event()

    def repeat() -> list[int]:
        found = []
        while not stop.is_set():
            found.append(predicted(address, content)[0])
        return found

    with ThreadPoolExecutor(clients) as pool:
        try:
            yield [pool.submit(repeat) for _ in range(clients)]
        finally:
            stop.set()


def test_who_waits_too_long_is_refused(tmp_path: Path) -> None:
    with started("--model", tmp_path / "m", *NEW, constants={"decoding.WAIT": 0.5}) as (_, client):
        post(client, examples(8))
        settled(client)
        with repeated(client.base_url, SMALL, 6) as attackers:
            answer = httpx.post(f"{client.base_url}/predict", files=4 * [("image", ("x", SMALL))], timeout=60)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "10")
        statuses = {status for attacker in attackers for status in attacker.result()}
        assert statuses == {200, 429}
