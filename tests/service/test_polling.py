"""Clients that poll what takes long while the model learns. Predictions do not wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from threading import Event

import httpx
import pytest

from tests.helpers.machine import slowness
from tests.helpers.serving import NEW, examples, post, settled, started

SECONDS = 2.0 * slowness()
SLEEP = f"__import__('time').sleep({SECONDS})"
GIVEN = examples(32)
IMAGES = [("image", ("x.png", image)) for image, _, _ in GIVEN]


def suggestions(client: httpx.Client) -> httpx.Response:
    return client.get("/suggestions")


def similar(client: httpx.Client) -> httpx.Response:
    return client.post("/examples", params={"name": "bird", "rank": "kind"}, files=IMAGES[:1])


def add(client: httpx.Client) -> httpx.Response:
    return client.post("/images", files=IMAGES[:2])


@pytest.mark.parametrize(
    ("poll", "slow"),
    [
        (suggestions, {"served.Snapshot.suggest": f"lambda self, x, count: {SLEEP} or []"}),
        (similar, {"served.Snapshot.frozen_features": f"lambda self, x: {SLEEP}"}),
        (add, {"served.Snapshot.frozen_features": f"lambda self, x: {SLEEP}"}),
    ],
    ids=["suggestions", "examples", "images"],
)
def test_predictions_do_not_wait(
    tmp_path: Path, poll: Callable[[httpx.Client], httpx.Response], slow: dict[str, float | str]
) -> None:
    """What is polled takes seconds, without use of the processor, so that only waiting shows."""
    stop = Event()

    def repeat() -> set[int]:
        with httpx.Client(base_url=client.base_url, timeout=60) as own:
            codes = set()
            while not stop.is_set():
                post(own, GIVEN[:1])  # something to learn: the ranking is not the last one
                codes.add(poll(own).status_code)
            return codes

    with started("--model", tmp_path / "m", *NEW, constants=slow) as (_, client), ThreadPoolExecutor(2) as pool:
        post(client, GIVEN)
        settled(client)
        assert add(client).status_code == 201
        polling = [pool.submit(repeat) for _ in range(2)]
        time.sleep(SECONDS)
        seconds = []
        for _ in range(8):
            began = time.monotonic()
            assert client.post("/predict", files=IMAGES[:1]).status_code == 200
            seconds.append(time.monotonic() - began)
            time.sleep(0.2)
        stop.set()
        assert {code for each in polling for code in each.result()} <= {200, 201, 429}
        assert median(seconds) < SECONDS / 2
