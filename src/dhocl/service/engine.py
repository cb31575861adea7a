"""The thread that changes the model. It applies the entries of the journal, after a crash from the last checkpoint."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Event, Thread
from typing import Any

import numpy as np

from dhocl.core.errors import InputError, lacks_memory
from dhocl.service.corrections import standing
from dhocl.service.journal import Entry, Journal, MovedError, Outcome
from dhocl.service.keeper import Keeper
from dhocl.service.logs import Line
from dhocl.service.recovery import (
    FAILED,
    TOO_LARGE,
    Attempts,
    ReplayError,
    Shortage,
    another,
    check_refusal,
    log_refused,
)
from dhocl.service.served import ServedModel, Snapshot, as_array

logger = logging.getLogger(__name__)

LINGER = 0.1  # seconds that the first entry of a micro-batch waits for others
WINDOW = 30.0  # seconds over which throughput is measured


class Engine:
    """Applies the journal to a model.

    `snapshot` is the model after the last micro-batch. `announce` is called with every change, in the engine's thread.
    `timed` measures the time of a micro-batch.
    """

    def __init__(
        self,
        served: ServedModel,
        journal: Journal,
        keeper: Keeper,
        announce: Callable[[list[tuple[str, Any]]], None],
        timed: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._served = served
        self._journal = journal
        self._keeper = keeper
        self._announce = announce
        self._timed = timed
        self._attempts = Attempts()
        self._shortage = Shortage()
        self._trials = 0  # that failed
        self._replaying = False  # entries that were applied before are applied again
        self._began = time.monotonic()
        self._learned_at: deque[tuple[float, int]] = deque(maxlen=1000)  # (time, observations)
        self._wake, self._stopping = Event(), Event()
        self._thread = Thread(target=self._run, name="engine")
        self.snapshot: Snapshot = Snapshot(served)
        self.failed = False

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Call this after appending to the journal."""
        self._wake.set()

    def stop(self) -> None:
        """Finish the current micro-batch and write a checkpoint."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self.failed

    @property
    def waiting(self) -> float:
        """Seconds since learning waits for memory; 0 if it does not."""
        return self._shortage.seconds

    @property
    def per_second(self) -> float:
        """Observations learned per second, over the last WINDOW seconds."""
        now = time.monotonic()
        window = min(WINDOW, max(1.0, now - self._began))
        return sum(count for when, count in list(self._learned_at) if now - when <= window) / window

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._work()
                except Exception as error:
                    if not lacks_memory(error):
                        raise
                    self._wait_for_memory(self._served.applied + 1, error)
                    self._restore()
            self.save()
        except Exception as error:
            self.failed = True
            known = isinstance(error, (InputError, MovedError, ReplayError, sqlite3.Error))
            unclear = not known or error.__cause__ is not None
            logger.error("learning has stopped, accepted entries are kept: %s", error, exc_info=unclear)

    def _work(self) -> None:
        """A turn, or a rest if there is nothing to do, and a checkpoint if it is time."""
        if not self.turn():
            self._shortage.applied(self._served.applied + 1)  # what it struck can be anything but an entry
            self._wake.wait(timeout=1.0)
            self._wake.clear()
            self._stopping.wait(LINGER)
        self._keeper.check_place()
        if self._keeper.due(self._served, self._replaying):
            self.save()

    def turn(self) -> bool:
        """Apply a micro-batch. False if no entry is queued. A replay ends with a checkpoint."""
        entries = self._next()
        before, self._replaying = self._replaying, bool(entries) and entries[0].step is not None
        if before and not self._replaying:
            self.save()
        if entries:
            with self._timed():
                self._apply(entries)
        return bool(entries)

    def save(self) -> None:
        """Write a checkpoint, if the model has changed since the last."""
        self._keeper.save(self._served)

    def _next(self) -> list[Entry]:
        """The next micro-batch: the same as before a crash, else consecutive observations or one other entry."""
        entries = self._journal.after(self._served.applied, self._served.batch)
        if not entries:
            return []
        first = entries[0]
        if first.step is None and (first.kind != "observation" or self._attempts.alone(first)):
            return [first]
        same = [entry.step == first.step and entry.kind == first.kind for entry in entries]
        return entries[: same.index(False)] if False in same else entries

    def _apply(self, entries: Sequence[Entry]) -> None:
        step = self._served.step + 1
        try:
            self._advance(entries, step)
        except (sqlite3.Error, MovedError, ReplayError):  # of the journal; another attempt would not help
            raise
        except Exception as error:
            self._recover(entries, step, error)

    def _advance(self, entries: Sequence[Entry], step: int) -> None:
        version = self.snapshot.taxonomy.version
        outcomes = self._observe(entries) if entries[0].kind == "observation" else self._change(entries[0])
        self._served.step = step
        self._served.applied = entries[-1].number
        self._served.refused += sum(o.state == "refused" for o in outcomes if entries[0].kind == "observation")
        if entries[0].step is None:
            self._settle(step, outcomes)
        self.snapshot = Snapshot(self._served, lagging=bool(self._journal.after(self._served.applied, 1)))
        self._publish(entries, outcomes, version)
        self._shortage.applied(self._served.applied)

    def _recover(self, entries: Sequence[Entry], step: int, error: Exception) -> None:
        """Restore the model, which may be in an invalid state, and refuse the entries or leave them for a retry."""
        what = f"entries {entries[0].number} to {entries[-1].number}"
        if lacks_memory(error):
            self._wait_for_memory(entries[0].number, error)
            refused = self._attempts.lacked_memory(entries, self._another_is_learned)
        else:
            logger.warning("%s can not be learned: %s: %s", what, type(error).__name__, error)
            refused = self._attempts.failed(entries, error)
        if refused:
            logger.error("%s are refused", what, exc_info=error)
            reason = TOO_LARGE if lacks_memory(error) else FAILED
            self._settle(step, [Outcome(e.number, "refused", {"reason": reason}) for e in entries])
        self._restore()

    def _another_is_learned(self, entry: Entry) -> bool:
        """Whether another observation can be learned now. It is a trial: the model has to be restored after it."""
        self._restore()
        other = another(self._journal, entry, self._trials)
        if other is None:
            return False
        try:
            self._served.learn(self._images([other]), [(other.content["name"], other.content["rank"])])
        except sqlite3.Error:  # of the journal
            raise
        except Exception as error:
            logger.warning("entry %d can not be learned either: %s: %s", other.number, type(error).__name__, error)
            self._trials += 1
            return False
        return True

    def _observe(self, entries: Sequence[Entry]) -> list[Outcome]:
        learnable = [entry for entry in entries if entry.state != "refused"]
        outcomes = {entry.number: Outcome(entry.number, "refused", entry.outcome or {}) for entry in entries}
        if learnable:
            labels = [(entry.content["name"], entry.content["rank"]) for entry in learnable]
            before = [entry.outcome or {} for entry in learnable] if entries[0].step is not None else None
            for entry, found in zip(
                learnable, self._served.learn(self._images(learnable), labels, before), strict=True
            ):
                outcomes[entry.number] = Outcome(entry.number, "done", found)
            self._learned_at.append((time.monotonic(), len(learnable)))
        return [outcomes[entry.number] for entry in entries]

    def _images(self, entries: Sequence[Entry]) -> list[np.ndarray]:
        size = self._served.model.config.image_size
        stored = self._journal.pixels(entries[0].number, entries[-1].number)
        for entry in entries:
            if len(stored.get(entry.number, b"")) != 3 * size**2:
                raise sqlite3.DatabaseError(f"the image of entry {entry.number} is not in the journal")
        return [as_array(stored[entry.number], size) for entry in entries]

    def _change(self, entry: Entry) -> list[Outcome]:
        """Apply a revision of the tree or a correction of an observation."""
        try:
            if entry.state == "refused":
                raise InputError((entry.outcome or {})["reason"])
            self._served.revise(entry.content) if entry.kind == "revision" else self._correct(entry)
        except InputError as error:
            check_refusal(entry, error)
            return [Outcome(entry.number, "refused", {"reason": str(error)})]
        if entry.step is None:
            logger.info(Line(f"{entry.kind} applied", entry=entry.number, kind=entry.content["kind"]))
        return [Outcome(entry.number, "done", {})]

    def _correct(self, entry: Entry) -> None:
        """InputError if the observation can not be corrected any more, or the method can not forget."""
        observation = standing(self._journal, entry)
        deleted = entry.content["kind"] == "delete"
        if observation.learned:
            new = None if deleted else (entry.content["name"], entry.content["rank"])
            self._served.correct(self._image(entry), (observation.name, observation.rank), new)
        elif not deleted:
            raise InputError(f"observation {entry.target} was refused, so it has no label to correct: post it again")
        self._keeper.erasing |= deleted

    def _image(self, entry: Entry) -> np.ndarray:
        """Of the observation that a correction is about."""
        number, size = entry.target or 0, self._served.model.config.image_size
        pixels = self._journal.pixels(number, number).get(number, b"")
        if len(pixels) != 3 * size**2:
            raise InputError(f"the image of observation {number} is no longer stored")
        return as_array(pixels, size)

    def _settle(self, step: int, outcomes: list[Outcome]) -> None:
        """Write outcomes to the journal; on a full disk, retry until it succeeds."""
        while True:
            try:
                self._journal.settle(step, outcomes)
                return log_refused(outcomes)
            except sqlite3.OperationalError as error:
                logger.error("the journal can not be written: %s", error)
                if self._stopping.wait(1.0):
                    raise  # without a checkpoint: entries without an outcome are learned again after a restart

    def _restore(self) -> None:
        """Load the last checkpoint, as soon as there is memory for it."""
        while True:
            try:
                self._served = self._keeper.load()
                return
            except Exception as error:
                if self._stopping.is_set() or not lacks_memory(error):
                    raise
                self._wait_for_memory(self._served.applied + 1, error)

    def _wait_for_memory(self, number: int, error: Exception) -> None:
        pause, what = self._shortage.pause(number), f"{type(error).__name__}: {error}"
        logger.warning("memory is short, entries from %d on wait, next attempt in %g s: %s", number, pause, what)
        self._stopping.wait(pause)

    def _publish(self, entries: Sequence[Entry], outcomes: Sequence[Outcome], version: int) -> None:
        news: list[tuple[str, Any]] = [
            (entry.kind, entry._replace(state=outcome.state, outcome=outcome.outcome))
            for entry, outcome in zip(entries, outcomes, strict=True)
            if entry.kind in ("observation", "correction")
        ]
        if self.snapshot.taxonomy.version > version:
            news.append(("taxonomy", version))
        self._announce([*news, ("metrics", None)])
