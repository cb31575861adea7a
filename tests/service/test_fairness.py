"""One client, with many connections, delays the requests of other addresses by little."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from threading import Event

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.helpers.machine import slowness
from tests.helpers.serving import NEW, encoded, examples, post, settled, started
from tests.service.test_one_client import SMALL

GRAIN = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
PHOTO = encoded(np.asarray(Image.fromarray(GRAIN).resize((4000, 3000))), "JPEG")  # 12 megapixels
LONG_PHOTO, PADDED = (content.ljust(8 * 2**20, b"\0") for content in (PHOTO, SMALL))  # as many bytes as are allowed
MANY_PIXELS = encoded(np.zeros((2000, 2000, 3), dtype=np.uint8), "PNG")  # 4 megapixels
(USUAL, *_), *_ = examples(1)


def client_of(address: httpx.URL, host: str) -> httpx.Client:
    """A client at another address of this machine."""
    return httpx.Client(base_url=address, transport=httpx.HTTPTransport(local_address=host), timeout=600)


def predict(client: httpx.Client, content: bytes, count: int = 1) -> tuple[int, float]:
    """Status and seconds."""
    began = time.monotonic()
    answer = client.post("/predict", files=count * [("image", ("x", content))])
    return answer.status_code, time.monotonic() - began


@contextmanager
def attacking(address: httpx.URL, content: bytes, count: int, clients: int) -> Iterator[None]:
    """Clients of one address that post images again and again, also after they were refused."""
    stop = Event()

    def repeat() -> None:
        with client_of(address, "127.0.0.1") as client:
            while not stop.is_set():
                with suppress(httpx.TransportError):
                    if predict(client, content, count)[0] == 429:
                        stop.wait(0.5)

    with ThreadPoolExecutor(clients) as pool:
        try:
            for _ in range(clients):
                pool.submit(repeat)
            yield
        finally:
            stop.set()


@pytest.mark.parametrize(
    ("content", "count", "clients", "photo"),
    [(PADDED, 1, 15, PHOTO), (MANY_PIXELS, 1, 60, USUAL), (PADDED, 3, 16, LONG_PHOTO)],
    ids=["large images", "small images", "memory"],
)
def test_another_address_is_answered(tmp_path: Path, content: bytes, count: int, clients: int, photo: bytes) -> None:
    patient = {"decoding.WAIT": 10 * slowness()}
    with (
        started("--model", tmp_path / "m", *NEW, constants=patient) as (_, client),
        client_of(client.base_url, "127.0.0.2") as other,
    ):
        post(client, examples(8))
        settled(client)
        predict(other, photo)  # starts a process
        alone = max(predict(other, each, many)[1] for each, many in ((photo, 1), (content, count)) for _ in range(3))
        with attacking(client.base_url, content, count, clients), client.stream("GET", "/events"):
            time.sleep(4)
            found = [predict(other, photo) for _ in range(6)]
        assert {status for status, _ in found} == {200}
        assert median(seconds for _, seconds in found) < 4 * alone + 1
