"""A disk that is full while the service runs, through a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.helpers.serving import NEW, examples, post, settled, started

OPTIONS = [*NEW, "--method", "er", "--buffer", "1000", "--checkpoint-every", "40"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as ballast:
        try:
            while ballast.write(bytes(4096)):
                pass
        except OSError:
            return


def filled(client: httpx.Client, ballast: Path) -> int:
    """Fill the disk, and post until nothing is accepted any more. Returns the number of observations accepted."""
    fill(ballast)
    accepted = 0
    for seed in range(1, 8):
        answer = post(client, examples(40, seed))
        assert answer.status_code in (202, 503)
        accepted += 40 * (answer.status_code == 202)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
    assert "the journal can not be written" in answer.json()["detail"], "not a service that has stopped learning"
    return accepted


def test_once_there_is_room_it_accepts_and_learns_without_a_restart(small_disk: Path) -> None:
    with started("--model", small_disk / "m", *OPTIONS) as (process, client):
        assert post(client, examples(40)).status_code == 202
        settled(client)
        for _ in range(2):
            accepted = settled(client)["accepted"] + filled(client, small_disk / "ballast")
            time.sleep(3)  # the engine tries to write outcomes and a checkpoint
            assert client.get("/health").json()["status"] == "ok"
            (small_disk / "ballast").unlink()
            assert post(client, examples(40, seed=9)).status_code == 202
            numbers = settled(client)
            assert (numbers["accepted"], numbers["learned"], numbers["refused"]) == (accepted + 40, accepted + 40, 0)
            assert client.get("/health").json()["status"] == "ok"
        process.terminate()
        assert process.wait() == 0


def test_what_was_accepted_before_and_after_is_learned_once(small_disk: Path) -> None:
    folder, ballast = small_disk / "m", small_disk / "ballast"
    accepted = 0
    with started("--model", folder, *OPTIONS) as (process, client):
        accepted += 40 * (post(client, examples(40)).status_code == 202)
        settled(client)
        accepted += filled(client, ballast)
        assert client.post("/predict", files={"image": ("x", examples(1)[0][0])}).status_code == 200
        process.terminate()
        assert process.wait() == 0, "though it can write no checkpoint"
    ballast.unlink()
    with started("--model", folder) as (process, client):
        accepted += 40 * (post(client, examples(40, seed=9)).status_code == 202)
        numbers = settled(client)
        assert (numbers["accepted"], numbers["learned"], numbers["refused"]) == (accepted, accepted, 0)
        process.terminate()
        assert process.wait() == 0
    assert not list(folder.rglob("*.partial"))
