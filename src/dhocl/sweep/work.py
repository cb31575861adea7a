"""One run of a sweep, from wherever it stands to its end."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from dhocl.config import RunConfig
from dhocl.record import Record
from dhocl.run import run

FAILED = "FAILED"
TELL = 0.5  # seconds between words about a run that goes on


def finish(config: RunConfig, folder: Path, tell: Callable[[int, int], None]) -> str | None:
    """Make a run or go on with it; its traceback if it failed, which is also kept in its folder.

    `tell` hears now and then how many samples of how many are learned.
    """
    record = Record(folder)
    if record.finished:
        return None
    (folder / FAILED).unlink(missing_ok=True)
    try:
        told = 0.0
        for progress in run(config, folder, resume=bool(record.curve())):
            if time.monotonic() - told > TELL:
                told = time.monotonic()
                tell(progress.samples, progress.total)
    except Exception:
        problem = traceback.format_exc()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FAILED).write_text(problem)
        return problem
    return None


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
