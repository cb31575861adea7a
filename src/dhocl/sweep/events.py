"""What an engine tells while it works."""

from __future__ import annotations

from typing import NamedTuple

from dhocl.sweep.folder import Job


class Begun(NamedTuple):
    job: Job


class Underway(NamedTuple):
    job: Job
    samples: int
    total: int


class Ended(NamedTuple):
    job: Job
    problem: str | None  # why it failed


Event = Begun | Underway | Ended
