"""One client can not stop the command: small files that cost much, through a process of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np

from tests.helpers.machine import slowness
from tests.helpers.serving import NEW, encoded, peak, post, settled, spent, started

SMALL = encoded(np.zeros((5000, 5000, 3), dtype=np.uint8), "WEBP", lossless=True)  # some bytes, 25 megapixels


def test_thumbnails_of_a_large_image_cost_no_decode(tmp_path: Path) -> None:
    with started("--model", tmp_path / "m", *NEW) as (process, client):
        before = peak(process.pid)
        number = post(client, [(SMALL, "void", "kind")]).json()["accepted"][0]
        settled(client)
        once, took = peak(process.pid), spent(process.pid)
        assert once - before < 700

        def code(_: int) -> int:
            return httpx.get(f"{client.base_url}/observations/{number}/thumbnail", timeout=60).status_code

        with ThreadPoolExecutor(60) as clients:
            assert set(clients.map(code, range(60))) == {200}
        assert peak(process.pid) - once < 50
        assert spent(process.pid) - took < 3 * slowness(), "60 decodes take more than 10 s"


def test_all_decodes_share_one_budget_of_memory(tmp_path: Path) -> None:
    """Posts of observations and predictions together cost as much memory as one decode."""
    with started("--model", tmp_path / "m", *NEW) as (process, client):
        before = peak(process.pid)

        def code(place: int) -> int:
            with httpx.Client(base_url=client.base_url, timeout=600) as own:
                if place % 2:
                    return own.post("/predict", files={"image": ("x", SMALL)}).status_code
                return post(own, [(SMALL, "void", "kind")]).status_code

        with ThreadPoolExecutor(12) as clients:
            assert set(clients.map(code, range(12))) <= {200, 202, 409, 429}
        settled(client)
        assert peak(process.pid) - before < 700


def test_a_jpeg_of_thousands_of_scans_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    usual = encoded(np.zeros((5000, 5000, 3), dtype=np.uint8), "JPEG", progressive=True)
    last = usual[usual.rindex(b"\xff\xda") : -2]
    slow = usual[:-2] + 3000 * last + usual[-2:]
    with started("--model", tmp_path / "m", *NEW) as (process, client):
        before = spent(process.pid)
        for _ in range(4):
            answer = client.post("/predict", files={"image": ("x", slow)})
            assert (answer.status_code, "more than 32 scans" in answer.json()["detail"]) == (413, True)
            assert post(client, [(slow, "void", "kind")]).status_code == 413
        assert spent(process.pid) - before < 5 * slowness()
        assert post(client, [(usual, "void", "kind")]).status_code == 202


def test_a_jpeg_whose_header_claims_too_many_pixels_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    usual = encoded(np.zeros((8, 8, 3), dtype=np.uint8), "JPEG")
    side = usual.index(b"\xff\xc0") + 5  # of the frame header: height, then width
    huge = usual[:side] + (60_000).to_bytes(2, "big") * 2 + usual[side + 4 :]
    with started("--model", tmp_path / "m", *NEW) as (process, client):
        before = peak(process.pid)
        for answer in (client.post("/predict", files={"image": ("x", huge)}), post(client, [(huge, "void", "kind")])):
            assert (answer.status_code, "pixels" in answer.json()["detail"]) == (413, True)
        assert peak(process.pid) - before < 200
