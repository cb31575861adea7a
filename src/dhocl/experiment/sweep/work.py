"""Execute one run of a sweep."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dhocl.core.files import InUseError, write_atomically
from dhocl.experiment.config import RunConfig
from dhocl.experiment.record import Record
from dhocl.experiment.run import run

FAILED = "FAILED"
INTERVAL = 0.5  # seconds between progress reports


def finish(config: RunConfig, folder: Path, report: Callable[[int, int], None], device: str = "auto") -> str | None:
    """Start or resume a run. Returns its traceback if it failed, which is also written to its folder.

    A run that another process works on is left to it. `report` is called with (samples learned, samples in total) every
    INTERVAL seconds.
    """
    record = Record(folder)
    if record.finished:
        return None
    (folder / FAILED).unlink(missing_ok=True)
    try:
        reported = 0.0
        for progress in run(config, folder, bool(record.curve()), device):
            if time.monotonic() - reported > INTERVAL:
                reported = time.monotonic()
                report(progress.samples, progress.total)
    except InUseError as error:
        return str(error)
    except Exception:
        if record.finished:  # by another process, while this one read the data
            return None
        problem = traceback.format_exc()
        with suppress(OSError):  # perhaps the disk is full
            write_atomically(folder / FAILED, problem.encode())
        return problem
    return None


class Place(NamedTuple):
    """Where a worker computes."""

    device: str
    threads: int


def places(workers: int, jobs: int, cores: int, gpus: int) -> list[Place]:
    """The workers of a machine: one per GPU, or one per core if there is none, but not more than jobs.

    With `workers` as many as that. They share the GPUs, in turn, and the cores.

    >>> places(workers=0, jobs=9, cores=8, gpus=2)
    [Place(device='cuda:0', threads=4), Place(device='cuda:1', threads=4)]
    >>> places(workers=0, jobs=9, cores=2, gpus=0)
    [Place(device='cpu', threads=1), Place(device='cpu', threads=1)]
    """
    count = min(workers or gpus or cores, max(1, jobs))
    threads = max(1, cores // count)
    return [Place(f"cuda:{number % gpus}" if gpus else "cpu", threads) for number in range(count)]


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
