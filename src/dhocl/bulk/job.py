"""The sums of a job so far, on disk, so that a job that was stopped goes on."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from dhocl.bulk.work import Part, Row, Task
from dhocl.core import checkpoint
from dhocl.methods.amber import Amber
from dhocl.nn.heads.bulk import BulkSums

TASKS: tuple[Task, ...] = ("labels", "guesses")


class Job:
    """What a job has summed up.

    Args:
        folder: where it is saved.
        learner: gets the sums in the end.
        rows: all images to learn. If another job was saved, it is forgotten.
    """

    def __init__(self, folder: Path, learner: Amber, rows: Sequence[Row]) -> None:
        self._folder = folder
        self._key = hashlib.sha256(repr([(row.node, row.mark) for row in rows]).encode()).hexdigest()
        self.sums = {task: BulkSums(learner.features.dim, learner.settings.calibration) for task in TASKS}
        self.done = dict.fromkeys(TASKS, 0)  # rows
        self.learned = torch.empty(0, dtype=torch.long)  # marks of the images that could be read
        state = checkpoint.load_newest(folder)
        if state is not None and state["key"] == self._key:
            for task in TASKS:
                self.sums[task].load_state_dict(state["sums"][task])
                self.done[task] = state["done"][task]
            self.learned = state["learned"]

    def add(self, task: Task, part: Part) -> None:
        self.sums[task].join(part.sums)
        if task == "labels":
            self.learned = torch.cat([self.learned, torch.tensor(part.learned, dtype=torch.long)])

    def save(self, task: Task, rows: int) -> None:
        """After all parts of the next `rows` rows were added."""
        self.done[task] += rows
        sums = {name: each.state_dict() for name, each in self.sums.items()}
        checkpoint.save(self._folder, {"key": self._key, "sums": sums, "done": self.done, "learned": self.learned})

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
