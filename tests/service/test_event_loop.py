"""What takes long is done in threads, so that other requests are answered meanwhile."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from dhocl import Classifier
from tests.helpers.machine import slowness
from tests.helpers.serving import NEW, examples, post, settled, started

HELD = 3.0  # seconds


def times_of_health(client: httpx.Client, others: Sequence[Future[Any]], seconds: float) -> list[float]:
    """Seconds of each response while others wait for theirs."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end and not all(other.done() for other in others):
        began = time.monotonic()
        assert client.get("/health").status_code == 200
        found.append(time.monotonic() - began)
    return found


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/observations/1", {"name": "cod", "rank": "species"}),
        ("DELETE", "/observations/1", None),
        ("DELETE", "/observations?first=1", None),
        ("POST", "/observations/1/unlabel", None),
    ],
    ids=["relabel", "delete", "undo", "unlabel"],
)
def test_corrections_wait_for_the_journal_alone(
    tmp_path: Path, method: str, path: str, body: dict[str, str] | None
) -> None:
    with (
        started("--model", tmp_path / "m", *NEW) as (_, client),
        closing(sqlite3.connect(tmp_path / "m" / "journal.sqlite", isolation_level=None)) as other,
        ThreadPoolExecutor() as clients,
        httpx.Client(base_url=client.base_url, timeout=60) as own,
    ):
        post(client, examples(4))
        settled(client)
        other.execute("BEGIN IMMEDIATE")  # who writes now waits, and keeps the lock of the journal
        writing = clients.submit(post, client, examples(1))
        time.sleep(0.5)
        correcting = clients.submit(httpx.request, method, f"{client.base_url}{path}", json=body, timeout=60)
        times = times_of_health(own, [correcting], HELD)
        assert not correcting.done()
        other.execute("ROLLBACK")
        assert (writing.result().status_code, correcting.result().status_code) == (202, 202)
        assert max(times) < HELD / 3


def test_a_search_for_names_that_are_alike_holds_up_nobody(tmp_path: Path) -> None:
    draw, letters = random.Random(0), "erithacus rubecula abcdef"

    def permuted() -> str:
        return "".join(draw.sample(letters, len(letters)))

    names = [permuted() for _ in range(5000)]
    classifier = Classifier(["kind", "species"], backbone="tiny", image_size=32, buffer=8, settings={"stages": 0.0})
    images = torch.zeros(len(names), 3, 32, 32, dtype=torch.uint8)
    classifier.learn(images, [(name, "species") for name in names])
    classifier.save(tmp_path / "m")
    files = {"image": ("x", examples(1)[0][0])}
    with started("--model", tmp_path / "m") as (_, client), ThreadPoolExecutor() as clients:
        client.post("/predict", files=files)  # starts what decodes
        asked = {"among": [permuted() for _ in range(3)]}
        slowest = []
        for _ in range(5):  # at least one of them is not disturbed by other work of the machine
            answer = clients.submit(httpx.post, f"{client.base_url}/predict", files=files, params=asked, timeout=60)
            slowest.append(max(times_of_health(client, [answer], 60)))
            assert answer.result().status_code == 422
        assert min(slowest) < 0.3 * slowness(), slowest
