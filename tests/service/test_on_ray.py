"""Replicas on a real Ray cluster on this machine, one of which is killed under load."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dhocl.service.keeper import Pace
from tests.helpers.serving import descendants, encoded, examples, mistake, post, running, settled, started, until

pytest.importorskip("ray")

TOKEN = "a-long-enough-token"
CLIENTS = 10  # more than one replica should have at once
EXAM = [("image", ("x.png", image, "image/png")) for image, _, _ in examples(3, seed=99)]


@pytest.mark.cluster
def test_replicas_on_ray_follow_and_survive_a_kill(tmp_path: Path) -> None:
    """What Ray Serve does not repeat by itself, the client does: what a replica had taken when it was killed."""
    (tmp_path / "token").write_text(TOKEN)
    with running(tmp_path / "m", token=TOKEN, pace=Pace(entries=1)) as writer:
        post(writer, examples(24))
        settled(writer)
        options = ["--engine", "ray", "--replicas", "1:2", "--image-mb", "1", "--token-file", tmp_path / "token"]
        with started("--follow", writer.base_url, *options) as (process, client):
            answer = client.post("/predict", files=EXAM, params={"top": 2})
            assert answer.json() == writer.post("/predict", files=EXAM, params={"top": 2}).json()
            assert len(_replicas(process.pid)) == 1
            _assert_limits(client, str(writer.base_url).rstrip("/"))
            decoders = {pid for pid, name in descendants(process.pid).items() if "anyio.to_process" in name}

            old, ending, found, retried = answer.json(), threading.Event(), list[Any](), list[int]()

            def load() -> None:
                with httpx.Client(base_url=client.base_url, timeout=60) as own:
                    while not ending.is_set():
                        found.append(_predicted(own, retried))

            threads = [threading.Thread(target=load) for _ in range(CLIENTS)]
            for thread in threads:
                thread.start()
            until(lambda: len(found) > 20, 60)
            assert decoders <= set(descendants(process.pid)), "a request starts no process of its own"
            until(lambda: len(_replicas(process.pid)) == 2, 90)
            until(lambda: len(_stalenesses(process.pid)) == 2, 90)
            os.kill(_replicas(process.pid)[0], signal.SIGKILL)
            killed = len(found)
            until(lambda: len(found) > killed + 40, 60)
            post(writer, examples(24, seed=1))
            settled(writer)
            new = writer.post("/predict", files=EXAM, params={"top": 2}).json()
            assert new != old
            until(lambda: len(found) > 20 and all(each == new for each in found[-20:]), 60)
            ending.set()
            for thread in threads:
                thread.join()
            assert all(each in (old, new) for each in found)
            assert len(retried) <= 6 * CLIENTS, "at most what was under way is repeated, a few times each"
            until(lambda: client.get("/metrics").json()["replica"]["behind"] == 0, 60)
            assert client.get("/health").json()["staleness"] < 60

            started_by_it = descendants(process.pid)
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
            until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started_by_it), 60)


def _replicas(process: int) -> list[int]:
    return [pid for pid, name in descendants(process).items() if name.startswith("ray::ServeReplica")]


def _stalenesses(process: int) -> list[str]:
    """Lines that Prometheus reads from Ray, one for each replica."""
    (agent,) = (name for name in descendants(process).values() if "--metrics-export-port" in name)
    options = dict(word[2:].split("=", 1) for word in agent.split() if "=" in word)
    (port,) = Path(options["session-dir"]).glob("metrics_export_port_*")
    found = httpx.get(f"http://{options['node-ip-address']}:{port.read_text()}/metrics").text
    return [line for line in found.splitlines() if line.startswith("ray_dhocl_staleness_seconds{")]


def _assert_limits(client: httpx.Client, writer: str) -> None:
    """Those of the service."""
    refused = client.post("/taxonomy", json={}, headers={"Authorization": f"Bearer {TOKEN}"})
    assert (refused.status_code, refused.json()["writer"]) == (403, writer)
    large = np.random.default_rng(0).integers(0, 256, (700, 700, 3), dtype=np.uint8)
    answer = client.post("/predict", files={"image": ("x.png", encoded(large), "image/png")})
    assert (answer.status_code, answer.json()["detail"]) == (413, "image 0 has more than 1048576 bytes")
    assert client.post("/predict", content=b"x" * (5 * 2**20)).status_code == 413
    assert client.post("/observations").status_code == 401


def _predicted(client: httpx.Client, retried: list[int]) -> Any:
    for attempt in range(6):
        time.sleep(0.1 * attempt)
        answer = client.post("/predict", files=EXAM, params={"top": 2})
        if answer.status_code == 200:
            return answer.json()
        assert answer.status_code in (500, 503), answer.text
        retried.append(answer.status_code)
    raise AssertionError("a request failed")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--engine", "ray"], "--engine ray is for replicas: give --follow"),
        (["--follow", "m", "--replicas", "2"], "--replicas is for Ray: add --engine ray"),
        (["--follow", "m", "--address", "x:1"], "--address is for Ray: add --engine ray"),
        (["--follow", "m", "--engine", "ray", "--replicas", "4:1"], "expected MIN:MAX"),
        (["--follow", "m", "--engine", "ray"], "m holds no model"),
        (["--follow", "http://127.0.0.1:1", "--engine", "ray"], "start the writer first"),
        (["--follow", "m", "--engine", "ray", "--host", "0.0.0.0"], "give a --token-file"),
    ],
)
def test_mistakes_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in mistake(monkeypatch, capsys, *arguments)
