"""Execute runs on a Ray cluster: one task per run, retried when its node is lost."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from dhocl.core.cluster import connect, shares
from dhocl.core.files import write_atomically
from dhocl.core.process import prepare
from dhocl.experiment.sweep.events import Begun, Ended, Event, Underway
from dhocl.experiment.sweep.folder import Job
from dhocl.experiment.sweep.work import FAILED, finish

POLL = 0.5  # seconds between queries of the cluster
ATTEMPTS = 3  # retries of a run whose node is lost
Files = dict[str, bytes]


def run_on_ray(jobs: Sequence[Job], workers: int, address: str | None) -> Iterator[Event]:
    """Execute all jobs on the cluster at `address`, or on one started here, at most `workers` at a time (0: no limit).

    Data must have the same path on every node. If the nodes share the folder of the sweep, runs are written there and
    resume from their checkpoints. Otherwise they run in a temporary folder and their files are sent back.
    """
    ray = connect(address, workers)
    marks = _mark({job.folder.parent for job in jobs})
    try:
        yield from _execute(ray, jobs, workers, {str(mark) for mark in marks})
    finally:
        for mark in marks:
            mark.unlink(missing_ok=True)
        ray.shutdown()


def _execute(ray: Any, jobs: Sequence[Job], workers: int, marks: set[str]) -> Iterator[Event]:
    board = ray.remote(num_cpus=0, max_restarts=-1)(ProgressBoard).remote()
    task = ray.remote(**shares(ray.cluster_resources()), max_retries=ATTEMPTS)(_task)
    waiting, tasks = list(jobs), dict[Any, Job]()
    begun: set[str] = set()
    while waiting or tasks:
        while waiting and (not workers or len(tasks) < workers):
            job = waiting.pop(0)
            tasks[task.remote(job, marks, board)] = job
        done, _ = ray.wait(list(tasks), timeout=POLL)
        by_folder = {str(job.folder): job for job in tasks.values()}
        for folder, progress in _read_progress(ray, board).items():
            if (known := by_folder.get(folder)) is not None:
                if folder not in begun:
                    begun.add(folder)
                    yield Begun(known)
                yield Underway(known, *progress)
        for ref in done:
            job = tasks.pop(ref)
            if str(job.folder) not in begun:
                yield Begun(job)
            yield Ended(job, _outcome(ray, ref, job))


def _read_progress(ray: Any, board: Any) -> dict[str, tuple[int, int]]:
    try:
        progress: dict[str, tuple[int, int]] = ray.get(board.read.remote(), timeout=POLL)
    except (ray.exceptions.RayError, TimeoutError):  # the node of the board may be lost; runs do not depend on it
        return {}
    return progress


def _outcome(ray: Any, ref: Any, job: Job) -> str | None:
    try:
        problem, files = ray.get(ref)
    except ray.exceptions.RayError as error:
        return f"its node was lost more than {ATTEMPTS} times: {error}"
    _keep(job, files)
    return problem  # type: ignore[no-any-return]


def _keep(job: Job, files: Files) -> None:
    """Write the files that a node sent back; the summary last, because it marks the run as finished."""
    for name in sorted(files, key=lambda name: name == "summary.json"):
        write_atomically(job.folder / name, files[name])


class ProgressBoard:
    """A Ray actor that collects the progress of the tasks."""

    def __init__(self) -> None:
        self._progress: dict[str, tuple[int, int]] = {}

    def write(self, folder: str, samples: int, total: int) -> None:
        self._progress[folder] = samples, total

    def read(self) -> dict[str, tuple[int, int]]:
        progress, self._progress = self._progress, {}
        return progress


def _task(job: Job, marks: set[str], board: Any) -> tuple[str | None, Files]:
    """Execute a run. Returns its error if any, and its files if this node does not share the folder of the sweep."""
    prepare(threads=1)

    def report(samples: int, total: int) -> None:
        board.write.remote(str(job.folder), samples, total)

    if any(Path(mark).exists() for mark in marks if Path(mark).parent == job.folder.parent):
        return finish(job.config, job.folder, report), {}
    with tempfile.TemporaryDirectory() as elsewhere:
        folder = Path(elsewhere) / job.folder.name
        problem = finish(job.config, folder, report)
        found = [*folder.glob("*.json*"), *folder.glob("*.safetensors"), *folder.glob(FAILED)]
        return problem, {path.name: path.read_bytes() for path in found}


def _mark(folders: set[Path]) -> list[Path]:
    """Create a file in each folder, by which a task detects a shared disk."""
    marks = []
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        marks.append(folder / f".{uuid4().hex}")
        marks[-1].touch()
    return marks
