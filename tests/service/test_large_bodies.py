"""Bodies that are large or have millions of parts, through a process of its own."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.helpers.machine import slowness
from tests.helpers.serving import NEW, encoded, peak, post, settled, started

COUNT = 1_000_000


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/taxonomy", b"[" + b"[]," * 10 * COUNT + b"[]]", 413),
        ("/observations", b'{"observations":[' + b"{}," * COUNT + b"{}]}", 413),
        ("/predict", b'{"images":[' + b'"",' * COUNT + b'""]}', 413),
    ],
    ids=["revision", "observations", "images"],
)
def test_millions_of_values_are_not_parsed(tmp_path: Path, path: str, body: bytes, code: int) -> None:
    """Nor do others wait for them. On a busy machine they may wait for a processor, but not each time."""
    with started("--model", tmp_path / "m", *NEW) as (process, client), ThreadPoolExecutor(1) as other:
        before = peak(process.pid)

        def slowest() -> float:
            headers, longest = {"Content-Type": "application/json"}, 0.0
            posted = other.submit(httpx.post, f"{client.base_url}{path}", content=body, headers=headers, timeout=60)
            while not posted.done():
                began = time.monotonic()
                assert client.get("/health").status_code == 200
                longest = max(longest, time.monotonic() - began)
            assert posted.result().status_code == code
            return longest

        assert any(slowest() < slowness() for _ in range(3))
        assert peak(process.pid) - before < 200


def test_a_revision_has_a_small_limit(fresh: httpx.Client) -> None:
    large = {"kind": "unlink", "child": {"name": "a" * 100_000, "rank": "kind"}}
    assert fresh.post("/taxonomy", json=large).status_code == 413


def test_uploads_need_no_room_for_temporary_files(fresh: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in memory, which is bounded anyway."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    noise = encoded(np.random.default_rng(0).integers(0, 256, (1000, 1000, 3), dtype=np.uint8))
    assert len(noise) > 2**20, "from here on they would be files"
    assert post(fresh, [(noise, "noise", "kind")] * 3).status_code == 202
    assert settled(fresh)["learned"] == 3
