"""What follows a micro-batch that failed: another attempt, entries one by one, a refusal, or the end of learning."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dhocl.core.errors import InputError, lacks_memory
from dhocl.service.journal import Entry, Outcome
from dhocl.service.logs import Line

logger = logging.getLogger(__name__)

ATTEMPTS = 2
ATTEMPTS_AT_MEMORY = 4  # with pauses of 1, 2 and 4 seconds between them
FAILED = "the learner failed on it: see the log of the service"  # reason of a refusal


class ReplayError(Exception):
    """Entries that were applied before can not be applied again. Another attempt, or a refusal, would not help."""


class Step(NamedTuple):
    refused: bool  # refuse the entries; else try again
    pause: float  # seconds before that


class Attempts:
    """Counts failures. A micro-batch is tried again, then its entries one by one; one that fails alone is refused."""

    def __init__(self) -> None:
        self._failures: Counter[tuple[int, str]] = Counter()
        self._single = 0  # new entries up to this number are applied one by one

    def alone(self, entry: Entry) -> bool:
        """Whether this entry, if it is new, is a micro-batch of its own."""
        return entry.number <= self._single

    def failed(self, entries: Sequence[Entry], error: Exception) -> Step:
        """ReplayError if the entries were applied before, and have failed too often since."""
        first, last = entries[0], entries[-1].number
        replayed = first.step is not None
        key = (first.number, "replayed" if replayed else "alone" if self.alone(first) else "together")
        self._failures[key] += 1
        count = self._failures[key]
        short = lacks_memory(error)
        pause = 2.0 ** (count - 1) if short else 0.0
        if count < (ATTEMPTS_AT_MEMORY if short else ATTEMPTS):
            return Step(refused=False, pause=pause)
        if replayed:
            raise ReplayError(f"entries {first.number} to {last} were learned before, and fail now") from error
        del self._failures[key]
        if self.alone(first):
            return Step(refused=True, pause=0.0)
        self._single = last
        return Step(refused=False, pause=pause)


def check_refusal(entry: Entry, error: InputError) -> None:
    """ReplayError if an entry is refused now that was applied before: the model would silently lack it."""
    if entry.state == "done":
        raise ReplayError(f"entry {entry.number} was applied before, and is refused now: {error}")


def log_refused(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.state == "refused":
            logger.warning(Line("entry refused", entry=outcome.number, reason=outcome.outcome["reason"]))
