"""Limits of the system: few open files, little memory."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.helpers.serving import NEW, command, encoded, examples, post, settled, started, until
from tests.service.test_slow_clients import many_connected

LARGE = encoded(np.zeros((4900, 5000, 3), dtype=np.uint8))
CGROUPS = Path("/sys/fs/cgroup/memory")  # version 1


def limited(which: int, value: int, hard: bool = True) -> Callable[[], None]:
    """For `preexec_fn`: set a limit, which the process has no right to raise."""

    def limit() -> None:
        ctypes.CDLL(None).prctl(24, 24, 0, 0, 0)  # PR_CAPBSET_DROP of CAP_SYS_RESOURCE: as if it were not root
        resource.setrlimit(which, (value, value if hard else resource.getrlimit(which)[1]))

    return limit


def learns_and_predicts(client: httpx.Client) -> None:
    assert post(client, examples(8)).status_code == 202
    assert settled(client)["learned"] == 8
    assert client.post("/predict", files={"image": ("x", examples(1)[0][0])}).status_code == 200


def test_open_files_are_as_many_as_needed_and_if_not_requests_may_come_again(tmp_path: Path) -> None:
    few = limited(resource.RLIMIT_NOFILE, 64, hard=False)
    with started("--model", tmp_path / "m", *NEW, preexec_fn=few) as (process, client):
        assert client.get("/health").status_code == 200
        raised = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        used = set(map(int, os.listdir(f"/proc/{process.pid}/fd")))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (min(set(range(100)) - used) + 1, raised[1]))
        answer = post(client, examples(1))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10"), "no process can be started"
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, raised)
        with many_connected(client, 100):
            learns_and_predicts(client)


def test_too_few_open_files_are_told_in_a_line(tmp_path: Path) -> None:
    done = subprocess.run(
        command("--model", tmp_path / "m", *NEW, "--port", 0),
        capture_output=True,
        text=True,
        preexec_fn=limited(resource.RLIMIT_NOFILE, 256),
    )
    assert done.returncode == 2
    assert "at most 256 files can be open, but 1000 are needed" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_a_limit_of_memory_that_can_not_be_raised_is_kept(tmp_path: Path) -> None:
    little = limited(resource.RLIMIT_DATA, 400 * 2**20)
    with started("--model", tmp_path / "m", *NEW, preexec_fn=little) as (_, client):
        learns_and_predicts(client)
        answer = client.post("/predict", files={"image": ("x", LARGE)})
        assert answer.status_code in (200, 422), answer.text


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A group of processes that share 450 MB."""
    try:
        group = Path(tempfile.mkdtemp(prefix="dhocl-test-", dir=CGROUPS))
        (group / "memory.limit_in_bytes").write_text(str(450 * 2**20))
    except OSError:
        pytest.skip("needs the right to limit the memory of processes")
    yield group

    def removed() -> bool:
        with suppress(OSError):
            group.rmdir()
        return not group.exists()

    until(removed, seconds=30)


def test_when_memory_runs_out_the_service_outlives_its_decoders(tmp_path: Path, small_memory: Path) -> None:
    def join() -> None:
        (small_memory / "cgroup.procs").write_text(str(os.getpid()))

    transparent = np.zeros((4900, 5000, 4), dtype=np.uint8)
    with started("--model", tmp_path / "m", *NEW, preexec_fn=join) as (process, client):
        answer = client.post("/predict", files={"image": ("x", encoded(transparent))})
        assert (answer.status_code, "memory is short" in answer.text) == (422, True)
        assert int((small_memory / "memory.oom_control").read_text().split()[-1]) > 0, "the system has ended a process"
        learns_and_predicts(client)
        assert process.poll() is None
