"""What the service survives as a process: learners that fail, a passing lack of memory, kills every two seconds."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pytest

from dhocl.core import checkpoint
from tests.helpers.failing import FAULTS, SLOW, failures
from tests.helpers.serving import NEW, encoded, examples, post, settled, started, until

FAILING = [*NEW, "--method", "tests.helpers.failing:Failing", "--buffer", "1000"]
SHORT = {"recovery.LONGEST": 0.1}  # pauses


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FAULTS, str(tmp_path / "faults"))
    return tmp_path / "faults"


def states(client: httpx.Client, count: int) -> Counter[str]:
    return Counter(client.get(f"/entries/{number}").json()["state"] for number in range(1, count + 1))


def stored(folder: Path) -> Counter[bytes]:
    """How often each image is in the memory of the learner."""
    state = checkpoint.load_newest(folder / "checkpoints")
    assert state is not None
    return Counter(image.numpy().tobytes() for image in state["model"]["learner"]["memory"]["columns"]["x"])


def test_a_replay_that_fails_stops_with_503_and_keeps_everything(tmp_path: Path, faults: Path) -> None:
    folder = tmp_path / "m"
    with started("--model", folder, *FAILING) as (_, client):
        post(client, examples(40))
        settled(client)
    faults.write_text("RuntimeError 1000000")
    with started("--model", folder) as (_, client):
        until(lambda: client.get("/health").status_code == 503, seconds=60)
        assert client.get("/health").json()["status"] == "failed"
        assert post(client, examples(1)).status_code == 503
        assert states(client, 40) == {"done": 40}
    assert failures(faults) <= 4, "it does not repeat for ever"
    faults.unlink()
    with started("--model", folder) as (process, client):
        until(lambda: client.get("/metrics").json()["learned"] == 40)
        assert settled(client)["refused"] == 0
        process.terminate()
        assert process.wait() == 0
    assert sorted(stored(folder).values()) == [1] * 40


@pytest.mark.parametrize("times", [1, 3, 8, 12, 40])
def test_a_passing_lack_of_memory_refuses_nothing(tmp_path: Path, faults: Path, times: int) -> None:
    faults.write_text(f"MemoryError {times}")
    with started("--model", tmp_path / "m", *FAILING, constants=SHORT) as (process, client):
        post(client, examples(30))
        numbers = settled(client)
        assert (numbers["learned"], numbers["refused"]) == (30, 0)
        assert client.get("/health").json()["status"] == "ok"
        process.terminate()
        assert process.wait() == 0
    assert sorted(stored(tmp_path / "m").values()) == [1] * 30


def test_a_replay_waits_for_memory(tmp_path: Path, faults: Path) -> None:
    with started("--model", tmp_path / "m", *FAILING) as (_, client):
        post(client, examples(40))
        settled(client)
    faults.write_text("MemoryError 12")
    with started("--model", tmp_path / "m", constants=SHORT) as (process, client):
        until(lambda: client.get("/metrics").json()["learned"] == 40, 60)
        assert client.get("/health").json()["status"] == "ok"
        process.terminate()
        assert process.wait() == 0
    assert sorted(stored(tmp_path / "m").values()) == [1] * 40


def test_while_memory_lacks_everything_is_kept_and_it_shows(tmp_path: Path, faults: Path) -> None:
    log = tmp_path / "log"
    faults.write_text("MemoryError 1000000")
    with (
        log.open("w") as file,
        started("--model", tmp_path / "m", *FAILING, constants=SHORT, stderr=file) as (process, client),
    ):
        post(client, examples(30))
        until(lambda: client.get("/health").json()["status"] == "waiting", 60)
        assert client.get("/health").status_code == 200
        assert post(client, examples(10, seed=1)).status_code == 202
        assert client.get("/metrics").json()["waiting"] > 0
        assert "dhocl_waiting_seconds 0.0\n" not in client.get("/metrics?format=prometheus").text
        until(lambda: log.read_text().count("memory is short") > 10, 60)
        assert states(client, 40) == {"queued": 40}
        faults.unlink()
        numbers = settled(client)
        assert (numbers["learned"], numbers["refused"], numbers["waiting"]) == (40, 0, 0)
        assert "dhocl_waiting_seconds 0.0\n" in client.get("/metrics?format=prometheus").text
        assert client.get("/health").json()["status"] == "ok"
        assert "memory suffices again" in log.read_text()
        process.terminate()
        assert process.wait() == 0
    assert sorted(stored(tmp_path / "m").values()) == [1] * 40


def test_a_service_that_waits_for_memory_stops_at_once(tmp_path: Path, faults: Path) -> None:
    faults.write_text("MemoryError 1000000")
    with started("--model", tmp_path / "m", *FAILING, constants={"recovery.LONGEST": 600.0}) as (process, client):
        post(client, examples(30))
        until(lambda: failures(faults) > 3, 60)
        process.terminate()
        assert process.wait(30) == 0
    faults.unlink()
    with started("--model", tmp_path / "m") as (_, client):
        assert settled(client)["learned"] == 30


@pytest.mark.parametrize(
    ("shade", "reason"),
    [
        (0, "the learner failed on it: see the log of the service"),
        (255, "it needs more memory than there is, while others are learned: see the log of the service"),
    ],
    ids=["error", "memory"],
)
@pytest.mark.usefixtures("faults")
def test_only_what_fails_by_itself_is_refused(tmp_path: Path, shade: int, reason: str) -> None:
    poison = encoded(np.full((32, 32, 3), shade, dtype=np.uint8))
    given = examples(29)
    with started("--model", tmp_path / "m", *FAILING, constants=SHORT) as (process, client):
        post(client, [*given[:11], (poison, "void", "kind"), *given[11:]])
        numbers = settled(client)
        assert (numbers["learned"], numbers["refused"]) == (29, 1)
        assert client.get("/entries/12").json() == {
            "number": 12,
            "kind": "observation",
            "state": "refused",
            "reason": reason,
        }
        process.terminate()
        assert process.wait() == 0
    assert sorted(stored(tmp_path / "m").values()) == [1] * 29


@pytest.mark.parametrize("others", [1, 8])
@pytest.mark.usefixtures("faults")
def test_what_memory_lacks_for_is_refused_only_when_others_are_learned(tmp_path: Path, others: int) -> None:
    """Two that fail come first. Until others arrive, memory may lack for all."""
    white = [(encoded(np.full((32, 32, 3), 255, dtype=np.uint8)), "void", "kind")] * 2
    with started("--model", tmp_path / "m", *FAILING, constants=SHORT) as (process, client):
        post(client, white)
        until(lambda: client.get("/health").json()["status"] == "waiting", 60)
        time.sleep(3)
        assert states(client, 2) == {"queued": 2}
        post(client, examples(others))
        numbers = settled(client)
        assert (numbers["learned"], numbers["refused"]) == (others, 2)
        process.terminate()
        assert process.wait() == 0
    assert sorted(stored(tmp_path / "m").values()) == [1] * others


@pytest.mark.usefixtures("faults")
def test_killed_every_two_seconds_it_still_gets_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay of all micro-batches would take four seconds."""
    monkeypatch.setenv(SLOW, "0.5")
    with started("--model", tmp_path / "m", *FAILING) as (_, client):
        for seed in range(4):
            assert post(client, examples(64, seed)).status_code == 202
        settled(client)
    applied = [0]
    while applied[-1] < 256 and len(applied) < 10:
        with started("--model", tmp_path / "m"):
            time.sleep(2)
        state = checkpoint.load_newest(tmp_path / "m" / "checkpoints")
        assert state is not None
        applied.append(state["service"]["applied"])
    assert applied[-1] == 256, applied
    assert sorted(stored(tmp_path / "m").values()) == [1] * 256
