"""What follows a micro-batch that failed: another attempt, entries one by one, a refusal, or the end of learning.

A lack of memory says nothing about the entries that it strikes. They wait until it is over. An entry is refused for it
only if others are learned in between, again and again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from dhocl.core.errors import InputError
from dhocl.service.journal import Entry, Journal, Outcome
from dhocl.service.logs import Line

logger = logging.getLogger(__name__)

ATTEMPTS = 2  # of a micro-batch, and of an entry by itself
TOGETHER = 4  # attempts of a micro-batch that lacks memory; its entries need less one by one
PROOFS = 6  # times in a row that another entry is learned, and this one then lacks memory again, until it is refused
LONGEST = 30.0  # seconds between attempts while memory lacks; the first pauses are 1, 2, 4, 8 and 16
OTHERS = 16  # observations of which one is learned on trial
FAILED = "the learner failed on it: see the log of the service"  # reason of a refusal
TOO_LARGE = "it needs more memory than there is, while others are learned: see the log of the service"


class ReplayError(Exception):
    """Entries that were applied before can not be applied again. Another attempt, or a refusal, would not help."""


class Attempts:
    """Counts failures. A micro-batch is tried again, then its entries one by one; one that fails alone is refused."""

    def __init__(self) -> None:
        self._failures: Counter[tuple[int, str]] = Counter()
        self._proofs: Counter[int] = Counter()  # by number of the entry
        self._single = 0  # new entries up to this number are applied one by one

    def alone(self, entry: Entry) -> bool:
        """Whether this entry, if it is new, is a micro-batch of its own."""
        return entry.number <= self._single

    def failed(self, entries: Sequence[Entry], error: Exception) -> bool:
        """Whether to refuse the entries; else they are tried again.

        ReplayError if they were applied before, and have failed too often since.
        """
        first, last = entries[0], entries[-1].number
        replayed = first.step is not None
        if self._count(first, "replayed" if replayed else self._how(first)) < ATTEMPTS:
            return False
        if replayed:
            raise ReplayError(f"entries {first.number} to {last} were learned before, and fail now") from error
        return self._given_up(first, last)

    def lacked_memory(self, entries: Sequence[Entry], another_is_learned: Callable[[Entry], bool]) -> bool:
        """Whether to refuse the entries; else they are tried again, however often memory lacked for them."""
        first, last = entries[0], entries[-1].number
        if first.step is not None:
            return False
        if self.alone(first):
            self._proofs[first.number] = self._proofs[first.number] + 1 if another_is_learned(first) else 0
            if self._proofs[first.number] < PROOFS:
                return False
            del self._proofs[first.number]
        elif self._count(first, "together, without memory") < TOGETHER:
            return False
        return self._given_up(first, last)

    def _how(self, first: Entry) -> str:
        return "alone" if self.alone(first) else "together"

    def _count(self, first: Entry, how: str) -> int:
        self._failures[first.number, how] += 1
        return self._failures[first.number, how]

    def _given_up(self, first: Entry, last: int) -> bool:
        """Whether to refuse the entries. A micro-batch is split first."""
        if self.alone(first):
            return True
        self._single = last
        return False


class Shortage:
    """A lack of memory, until the entry that it struck is applied or refused."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._at = 0
        self._count = 0  # attempts since then

    @property
    def seconds(self) -> float:
        """How long it lasts so far; 0 if there is none."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def pause(self, number: int) -> float:
        """Seconds until the next attempt to apply the entry with this number."""
        if self._began is None:
            self._began = time.monotonic()
        self._at = number
        self._count += 1
        return min(2.0 ** min(self._count - 1, 10), LONGEST)  # an exponent without a limit would overflow

    def applied(self, number: int) -> None:
        """Entries up to this number are in the model."""
        if self._began is not None and number >= self._at:
            logger.info(Line("memory suffices again", entry=number, seconds=round(self.seconds, 3)))
            self._began, self._count = None, 0


def another(journal: Journal, entry: Entry, turn: int) -> Entry | None:
    """An observation other than this one, at the next turn the next; those that were learned before come first."""
    found = journal.entries(
        "WHERE kind = 'observation' AND state != 'refused' AND number != ? AND number IN (SELECT number FROM images) "
        "ORDER BY state = 'done' DESC, number DESC LIMIT ?",
        entry.number,
        OTHERS,
    )
    return found[turn % len(found)] if found else None


def check_refusal(entry: Entry, error: InputError) -> None:
    """ReplayError if an entry is refused now that was applied before: the model would silently lack it."""
    if entry.state == "done":
        raise ReplayError(f"entry {entry.number} was applied before, and is refused now: {error}")


def log_refused(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.state == "refused":
            logger.warning(Line("entry refused", entry=outcome.number, reason=outcome.outcome["reason"]))
