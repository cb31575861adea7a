"""Events of an engine."""

from __future__ import annotations

from typing import NamedTuple

from dhocl.experiment.sweep.folder import Job


class Begun(NamedTuple):
    job: Job


class Underway(NamedTuple):
    job: Job
    samples: int
    total: int


class Ended(NamedTuple):
    job: Job
    problem: str | None  # why it failed, or None

    @property
    def reason(self) -> str:
        """The last line of a traceback."""
        return (self.problem or "").strip().rpartition("\n")[2]


Event = Begun | Underway | Ended
