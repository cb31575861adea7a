"""The one thread that changes the model: it works off the journal, again from the last checkpoint after a crash."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from dhocl.errors import InputError
from dhocl.service import images
from dhocl.service.journal import Entry, Journal, Outcome
from dhocl.service.model import Model, View

logger = logging.getLogger(__name__)

LINGER = 0.1  # seconds that the first of a micro-batch waits for others
WINDOW = 30.0  # seconds that the throughput is of


@dataclass(frozen=True)
class Pace:
    """When to write a checkpoint: whichever comes first."""

    entries: int = 1000
    seconds: float = 60.0


class Engine:
    """`view` is the model as of the last micro-batch; `announce` hears of every change, in this engine's thread."""

    def __init__(
        self,
        folder: Path,
        model: Model,
        journal: Journal,
        announce: Callable[[list[tuple[str, Any]]], None],
        most_pixels: int,
        pace: Pace,
    ) -> None:
        self._folder = folder
        self._model = model
        self._journal = journal
        self._announce = announce
        self._most_pixels = most_pixels
        self._pace = pace
        self._saved = model.applied  # the entry up to which the last checkpoint goes
        self._tried, self._tried_at = model.applied, time.monotonic()  # when there was to be one
        self._began = time.monotonic()
        self._learned_at: deque[tuple[float, int]] = deque(maxlen=1000)  # when, and how many
        self._wake, self._stopping = Event(), Event()
        self._thread = Thread(target=self._run, name="engine")
        self.view: View = model.view()
        self.failed = False
        self._check(model)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Something was appended."""
        self._wake.set()

    def stop(self) -> None:
        """Finish the micro-batch, write a checkpoint."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self.failed

    @property
    def per_second(self) -> float:
        """Observations learned, over the last half minute."""
        now = time.monotonic()
        window = min(WINDOW, max(1.0, now - self._began))
        return sum(count for when, count in list(self._learned_at) if now - when <= window) / window

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if not self.turn():
                    self._wake.wait(timeout=1.0)
                    self._wake.clear()
                    self._stopping.wait(LINGER)
                self._save_if_due()
            self.save()
        except Exception:
            self.failed = True
            logger.exception("the engine has stopped; nothing accepted is lost: mend the cause and start again")

    def turn(self) -> bool:
        """Apply a micro-batch, if something waits."""
        if entries := self._next():
            self._apply(entries)
        return bool(entries)

    def _next(self) -> list[Entry]:
        """A micro-batch as it was before a crash; else observations that follow one another, or a revision alone."""
        entries = self._journal.after(self._model.applied, self._model.classifier.batch)
        if not entries:
            return []
        first = entries[0]
        if first.step is None and first.kind != "observation":
            return [first]
        same = [entry.step == first.step and entry.kind == first.kind for entry in entries]
        return entries[: same.index(False)] if False in same else entries

    def _apply(self, entries: Sequence[Entry]) -> None:
        replayed = entries[0].step is not None
        step = self._model.step + 1
        version = self.view.taxonomy.version
        try:
            outcomes = self._observe(entries) if entries[0].kind == "observation" else self._revise(entries[0])
        except Exception:  # the model may be half changed: take the last whole one, and go on without these
            logger.exception("entries %d to %d can not be learned", entries[0].number, entries[-1].number)
            self._settle(step, [Outcome(e.number, "refused", {"reason": "the learner failed"}) for e in entries])
            self._restore()
            return
        self._model.step = step
        self._model.applied = entries[-1].number
        self._model.refused += sum(o.state == "refused" for o in outcomes if entries[0].kind == "observation")
        if not replayed:
            self._settle(step, outcomes)
        self.view = self._model.view()
        self._tell(entries, outcomes, version)

    def _observe(self, entries: Sequence[Entry]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        arrays: list[np.ndarray] = []
        learnable: list[Entry] = []
        for entry in entries:
            try:
                arrays.append(self._pixels(entry))
                learnable.append(entry)
            except InputError as error:
                outcomes[entry.number] = Outcome(entry.number, "refused", {"reason": str(error)})
        if learnable:
            labels = [(entry.content["name"], entry.content["rank"]) for entry in learnable]
            for entry, guess in zip(learnable, self._model.learn(arrays, labels), strict=True):
                outcomes[entry.number] = Outcome(entry.number, "done", {"predicted": guess})
            self._learned_at.append((time.monotonic(), len(learnable)))
        return [outcomes[entry.number] for entry in entries]

    def _pixels(self, entry: Entry) -> np.ndarray:
        if entry.state == "refused":
            raise InputError((entry.outcome or {})["reason"])
        content = self._journal.image(entry.number)
        assert content is not None
        return images.pixels(content, self._model.classifier.image_size, self._most_pixels)

    def _revise(self, entry: Entry) -> list[Outcome]:
        try:
            if entry.state == "refused":
                raise InputError((entry.outcome or {})["reason"])
            self._model.revise(entry.content)
        except InputError as error:
            logger.warning("revision %d is refused: %s", entry.number, error)
            return [Outcome(entry.number, "refused", {"reason": str(error)})]
        return [Outcome(entry.number, "done", {})]

    def _settle(self, step: int, outcomes: list[Outcome]) -> None:
        """On disk, however long the disk takes to have room."""
        while True:
            try:
                return self._journal.settle(step, outcomes)
            except sqlite3.OperationalError as error:
                logger.error("the journal can not be written: %s", error)
                if self._stopping.wait(1.0):
                    raise  # without a checkpoint: what is not noted as learned is learned again after a restart

    def _restore(self) -> None:
        model = Model.load(self._folder)
        if model is None:
            raise InputError(f"{self._folder} holds no whole checkpoint")
        self._check(model)
        self._model, self._saved, self._tried = model, model.applied, model.applied

    def _check(self, model: Model) -> None:
        if not self._journal.whole(model.applied):
            raise InputError(
                f"the journal in {self._folder.parent} does not go on where its checkpoint ends: restore it"
            )

    def _save_if_due(self) -> None:
        waited = time.monotonic() - self._tried_at
        if self._model.applied - self._tried >= self._pace.entries or waited >= self._pace.seconds:
            self.save()

    def save(self) -> None:
        """A checkpoint, if something has changed since the last."""
        self._tried, self._tried_at = self._model.applied, time.monotonic()
        if self._model.applied == self._saved:
            return
        try:
            self._model.save(self._folder)
            before, self._saved = self._saved, self._model.applied
            self._journal.prune(covered=before)  # of two checkpoints the older one may be needed
        except (OSError, sqlite3.OperationalError) as error:
            logger.error("no checkpoint could be written: %s", error)

    def _tell(self, entries: Sequence[Entry], outcomes: Sequence[Outcome], version: int) -> None:
        news: list[tuple[str, Any]] = [
            ("observation", entry._replace(state=outcome.state, outcome=outcome.outcome))
            for entry, outcome in zip(entries, outcomes, strict=True)
            if entry.kind == "observation"
        ]
        if self.view.taxonomy.version > version:
            news.append(("taxonomy", version))
        self._announce([*news, ("metrics", None)])
