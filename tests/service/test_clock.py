"""A clock that goes backwards: times are shown, but nothing is ordered or awaited by them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers.serving import NEW, examples, post, settled, started

BACKWARDS = """
import itertools, time
real, calls = time.time, itertools.count()
time.time = lambda: real() - 600 * next(calls)
"""


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes with each look at it."""
    (tmp_path / "sitecustomize.py").write_text(BACKWARDS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    folder = tmp_path / "m"
    with started("--model", folder, *NEW, "--checkpoint-every", 8) as (_, client):
        for seed in range(3):
            assert post(client, examples(8, seed)).status_code == 202
        settled(client)
        recent = client.get("/observations/recent?n=24").json()
    assert [entry["number"] for entry in recent] == list(range(24, 0, -1))
    assert recent[0]["time"] < recent[-1]["time"], "the clock went backwards"
    with started("--model", folder) as (process, client):
        post(client, examples(8, seed=3))
        numbers = settled(client)
        assert (numbers["accepted"], numbers["learned"], numbers["refused"]) == (32, 32, 0)
        process.terminate()
        assert process.wait() == 0
