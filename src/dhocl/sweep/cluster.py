"""Runs on a Ray cluster: one task per run, done again when its node is lost."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from dhocl.checkpoint import write_atomically
from dhocl.errors import InputError
from dhocl.sweep.events import Begun, Ended, Event, Underway
from dhocl.sweep.folder import Job
from dhocl.sweep.work import FAILED, finish

LISTEN = 0.5  # seconds between looks at the cluster
ATTEMPTS = 3  # beyond the first, when a node is lost
Files = dict[str, bytes]


def run_on_ray(jobs: Sequence[Job], workers: int, address: str | None) -> Iterator[Event]:
    """All jobs on the cluster at `address`, or on one started here; `workers` caps the runs at a time (0: no cap).

    Data must lie at the same path on every node. Where the sweep's folder is shared by the nodes, runs are made in
    place and go on from their checkpoints; where it is not, they are made elsewhere and their files sent home.
    """
    ray = _connect(address, workers)
    marks = _mark({job.folder.parent for job in jobs})
    try:
        yield from _listen(ray, jobs, workers, {str(mark) for mark in marks})
    finally:
        for mark in marks:
            mark.unlink(missing_ok=True)
        ray.shutdown()


def _connect(address: str | None, workers: int) -> Any:
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs the ray package: pip install 'dhocl[ray]'") from None
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init(num_cpus=workers or None, include_dashboard=False, **quiet)
        else:
            _knock(address)
            ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"the cluster at {address or 'this machine'} does not answer: {reason}; see --address"
        ) from None
    return ray


def _knock(address: str) -> None:
    """Ray itself would wait for a minute."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


def _listen(ray: Any, jobs: Sequence[Job], workers: int, marks: set[str]) -> Iterator[Event]:
    gpus = 1 if ray.cluster_resources().get("GPU") else 0
    board = ray.remote(num_cpus=0, max_restarts=-1)(Board).remote()
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=ATTEMPTS)(_task)
    waiting, tasks = list(jobs), dict[Any, Job]()
    begun: set[str] = set()
    while waiting or tasks:
        while waiting and (not workers or len(tasks) < workers):
            job = waiting.pop(0)
            tasks[task.remote(job, marks, board)] = job
        done, _ = ray.wait(list(tasks), timeout=LISTEN)
        by_folder = {str(job.folder): job for job in tasks.values()}
        for folder, word in _words(ray, board).items():
            if (known := by_folder.get(folder)) is not None:
                if folder not in begun:
                    begun.add(folder)
                    yield Begun(known)
                yield Underway(known, *word)
        for ref in done:
            job = tasks.pop(ref)
            if str(job.folder) not in begun:
                yield Begun(job)
            yield Ended(job, _outcome(ray, ref, job))


def _words(ray: Any, board: Any) -> dict[str, tuple[int, int]]:
    try:
        words: dict[str, tuple[int, int]] = ray.get(board.read.remote(), timeout=LISTEN)
    except (ray.exceptions.RayError, TimeoutError):  # its node may be the one that was lost; nothing hangs on it
        return {}
    return words


def _outcome(ray: Any, ref: Any, job: Job) -> str | None:
    try:
        problem, files = ray.get(ref)
    except ray.exceptions.RayError as error:
        return f"its node was lost more than {ATTEMPTS} times: {error}"
    _keep(job, files)
    return problem  # type: ignore[no-any-return]


def _keep(job: Job, files: Files) -> None:
    """What a run elsewhere sent home; its summary last, for that says it is finished."""
    for name in sorted(files, key=lambda name: name == "summary.json"):
        job.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(job.folder / name, files[name])


class Board:
    """Where tasks say how far they are."""

    def __init__(self) -> None:
        self._words: dict[str, tuple[int, int]] = {}

    def write(self, folder: str, samples: int, total: int) -> None:
        self._words[folder] = samples, total

    def read(self) -> dict[str, tuple[int, int]]:
        words, self._words = self._words, {}
        return words


def _task(job: Job, marks: set[str], board: Any) -> tuple[str | None, Files]:
    """The problem if any, and the files of the run where the sweep's folder can not be seen from here."""
    import torch

    torch.set_num_threads(1)

    def tell(samples: int, total: int) -> None:
        board.write.remote(str(job.folder), samples, total)

    if any(Path(mark).exists() for mark in marks if Path(mark).parent == job.folder.parent):
        return finish(job.config, job.folder, tell), {}
    with tempfile.TemporaryDirectory() as elsewhere:
        folder = Path(elsewhere) / job.folder.name
        problem = finish(job.config, folder, tell)
        found = [*folder.glob("*.json*"), *folder.glob("*.safetensors"), *folder.glob(FAILED)]
        return problem, {path.name: path.read_bytes() for path in found}


def _mark(folders: set[Path]) -> list[Path]:
    """A file in each folder by which a task knows that it sees the same disk."""
    marks = []
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        marks.append(folder / f".{uuid4().hex}")
        marks[-1].touch()
    return marks
