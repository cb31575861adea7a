"""Checkpoints of a service: when they are written, and what of the journal may be deleted then."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from dhocl.core import checkpoint
from dhocl.core.errors import InputError, lacks_memory
from dhocl.core.files import is_same
from dhocl.core.process import return_freed_memory
from dhocl.service.corrections import erase, erasing
from dhocl.service.journal import Journal, MovedError
from dhocl.service.logs import Line
from dhocl.service.served import ServedModel

logger = logging.getLogger(__name__)

REPLAY_SECONDS = 1.0  # between checkpoints of a replay, so that a service that is killed often gets ahead
REPLAY_SHARE = 4.0  # a replay takes at least this many times as long as its checkpoints


@dataclass(frozen=True)
class Pace:
    """Write a checkpoint after so many entries or seconds, whichever comes first."""

    entries: int = 1000
    seconds: float = 60.0


class Keeper:
    """Writes the checkpoints of a folder and loads the last one."""

    def __init__(self, folder: Path, journal: Journal, pace: Pace, served: ServedModel) -> None:
        self._folder = folder
        self._place = os.stat(folder)
        self._journal = journal
        self._pace = pace
        self._device = str(served.model.device)
        self._saved = served.applied  # last entry in the last checkpoint
        self._older = 0  # last entry in the one before, as far as known
        self.erasing = True  # something of a deleted observation may be on disk
        self._tried, self._tried_at = served.applied, time.monotonic()  # last attempt
        self._cost = 0.0  # seconds that the last attempt took
        self._check_journal(served)

    def check_place(self) -> None:
        """MovedError if journal or checkpoints are no longer where they were."""
        self._journal.check_place()
        if not is_same(self._folder, self._place):
            raise MovedError(self._folder)

    def due(self, served: ServedModel, replaying: bool) -> bool:
        waited = time.monotonic() - self._tried_at
        if (replaying or self.erasing) and waited >= max(REPLAY_SECONDS, REPLAY_SHARE * self._cost):
            return True
        return served.applied - self._tried >= self._pace.entries or waited >= self._pace.seconds

    def save(self, served: ServedModel) -> None:
        """Write a checkpoint, if the model has changed since the last."""
        began = time.monotonic()
        self._tried = served.applied
        try:
            if served.applied != self._saved:
                self._write(served)
            if self.erasing:
                self._erase(served)
        except Exception as error:
            if not isinstance(error, OSError | sqlite3.OperationalError) and not lacks_memory(error):
                raise
            logger.error("a checkpoint could not be written: %s: %s", type(error).__name__, error)
        self._tried_at = time.monotonic()
        self._cost = self._tried_at - began

    def _write(self, served: ServedModel) -> None:
        began = time.monotonic()
        self.check_place()
        served.save(self._folder, make_folder=False)  # it may be moved at this moment
        seconds = round(time.monotonic() - began, 3)
        logger.info(Line("checkpoint written", entry=served.applied, learned=served.learned, seconds=seconds))
        self._older, self._saved = self._saved, served.applied
        return_freed_memory()  # what learning needs for a moment is more than the model
        self.check_place()  # the checkpoint may have gone elsewhere
        if checkpoint.count(self._folder) >= checkpoint.KEEP:
            self._journal.prune(covered=self._older)  # the older checkpoint may still be needed

    def _erase(self, served: ServedModel) -> None:
        """Remove deleted observations from disk, once both checkpoints are without them.

        Before, a replay would need their images. A second checkpoint replaces the one before the deletion.
        """
        if erasing(self._journal):
            if self._older < served.applied:
                self._write(served)
            count = erase(self._journal, covered=served.applied)
            logger.info(Line("deleted images erased", images=count, entry=served.applied))
        self.erasing = not self._journal.clear_log()

    def load(self) -> ServedModel:
        """The model of the last checkpoint."""
        served = ServedModel.load(self._folder, self._device)
        if served is None:
            raise InputError(f"{self._folder} has no intact checkpoint: restore one")
        self._check_journal(served)
        self._saved, self._tried, self._tried_at = served.applied, served.applied, time.monotonic()
        self._older, self.erasing = 0, True
        return served

    def _check_journal(self, served: ServedModel) -> None:
        if not self._journal.whole(served.applied):
            raise InputError(
                f"the journal in {self._folder.parent} does not continue its checkpoint: restore it from a backup"
            )
