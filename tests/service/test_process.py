"""The command itself, in a process of its own: started, killed, started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.helpers.serving import NEW, command, encoded, examples, mistake, peak, post, settled, started

ROOT = Path(__file__).parents[2]


def test_stopped_and_killed_it_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    with started("--model", folder, *NEW) as (process, client):
        post(client, examples(40))
        settled(client)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    with started("--model", folder) as (process, client):
        assert client.get("/metrics").json()["learned"] == 40
        answer = post(client, examples(40, seed=1))
        process.kill()
        assert answer.status_code == 202
    with started("--model", folder, *NEW) as (process, client):
        numbers = settled(client)
        assert numbers["accepted"] == numbers["learned"] == 80
        assert client.get("/taxonomy").json()["ranks"] == ["kind", "species"]
        with httpx.stream("GET", f"{client.base_url}/events", timeout=60) as stream:
            next(stream.iter_lines())
            process.send_signal(signal.SIGTERM)  # whoever listens does not hold it up
            assert process.wait() == 0


@pytest.mark.parametrize("method", ["amber", "er"])
def test_under_random_kills_everything_accepted_is_learned_once(tmp_path: Path, method: str) -> None:
    out = tmp_path / "report.json"
    options = [
        "--method",
        method,
        "--kills",
        "2",
        "--longest",
        "2",
        "--most",
        "400",
        "--every",
        "40",
        "--out",
        str(out),
    ]
    done = subprocess.run([sys.executable, ROOT / "benchmarks" / "soak.py", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(out.read_text())
    assert (report["method"], report["kills"]) == (method, 2)
    assert report["accepted"] == report["learned"] > 0


def test_a_response_does_not_wait_for_an_acknowledgement(tmp_path: Path) -> None:
    """Without TCP_NODELAY each response takes 40 ms more."""

    def seconds() -> float:
        began = time.perf_counter()
        assert client.get("/health").status_code == 200
        return time.perf_counter() - began

    with started("--model", tmp_path / "m", *NEW) as (_, client):
        assert min(seconds() for _ in range(20)) < 0.03


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Twenty images of 25 megapixels would be 1.5 GB; they are looked at one by one."""
    large = encoded(np.zeros((5000, 5000, 3), dtype=np.uint8))
    with started("--model", tmp_path / "m", *NEW) as (process, client):
        before = peak(process.pid)
        assert post(client, [(large, "void", "kind")] * 20).status_code == 202
        assert settled(client)["learned"] == 20
        assert peak(process.pid) - before < 600


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "none"], "has no model: give --levels"),
        (["--host", "0.0.0.0"], "give a --token-file"),
        (["--protect-reading"], "needs a --token-file"),
        (["--token-file", "missing"], "can not be read"),
        (["--levels", "a,a", "--backbone", "tiny"], "different names, coarsest first"),
        (["--levels", "a,,b", "--backbone", "tiny"], "separated by commas"),
        (["--levels", "a,b", "--method", "magic"], "there is no method 'magic'"),
        (["--levels", "a,b", "--backbone", "tiny", "--source", "wikipedia"], "no knowledge source"),
        (["--host", "192.0.2.1", "--token-file", "token"], "can not listen on 192.0.2.1"),
    ],
)
def test_mistakes_are_told_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    (tmp_path / "token").write_text("a-long-enough-token")
    monkeypatch.chdir(tmp_path)
    assert says in mistake(monkeypatch, capsys, *arguments)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with started("--model", tmp_path / "m", *NEW) as (_, client):
        port = client.base_url.port
        done = subprocess.run(
            command("--model", tmp_path / "n", *NEW, "--port", port),
            capture_output=True,
            text=True,
        )
        assert (done.returncode, "choose another --port" in done.stderr) == (2, True)
        done = subprocess.run(
            command("--model", tmp_path / "m", "--port", 0),
            capture_output=True,
            text=True,
        )
        assert (done.returncode, "in use by another process" in done.stderr) == (2, True)


def test_the_guarded_one_can_be_reached_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-long-enough-token\n")
    options = ["--host", "0.0.0.0", "--token-file", tmp_path / "token", "--protect-reading"]
    with started("--model", tmp_path / "m", *NEW, *options) as (_, client):
        address = f"http://127.0.0.1:{client.base_url.port}"
        assert httpx.get(f"{address}/metrics").status_code == 401
        bearer = {"Authorization": "Bearer a-long-enough-token"}
        assert httpx.get(f"{address}/metrics", headers=bearer | {"Host": "birds.example"}).status_code == 200
