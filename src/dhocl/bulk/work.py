"""What a worker does: read some images, and sum up what they add to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.core.places import Place
from dhocl.data.files import read_each
from dhocl.knowledge import Silent
from dhocl.methods.amber import Amber
from dhocl.model import Model
from dhocl.nn.heads.bulk import BulkSums

CHUNK = 1024  # images that are summed up at once
BATCH = 64  # images that the network sees at once

Task = Literal["labels", "guesses"]  # first sum up labels, then guesses of what is below them


class Row(NamedTuple):
    """An image to learn."""

    path: Place
    node: int  # its label
    mark: int  # of its own, random


class Part(NamedTuple):
    """What some rows add up to."""

    sums: BulkSums  # on the CPU
    rows: int
    problems: list[str]  # about images that can not be read, which are left out
    learned: list[int]  # marks of the others


class Worker:
    """Sums up images.

    Args:
        model: state of the model, as it is before the task.
        task: what to sum up.
        ahead: whether images are decoded ahead in other processes.
        device: where to compute.
    """

    def __init__(self, model: dict[str, Any], task: Task, ahead: bool = True, device: str = "auto") -> None:
        self._ahead = ahead
        self._model = Model.from_state(model, source=Silent(), device=device)
        self._task = task
        self._learner = bulk_learner(self._model)

    def __call__(self, rows: Sequence[Row]) -> Part:
        size, features = self._model.config.image_size, self._learner.features
        good: list[Row] = []
        problems: list[str] = []
        phi = [torch.zeros(0, features.dim, device=self._model.device)]
        with self._model.resting():
            for read, x in read_each(rows, lambda row: row.path, size, BATCH, ahead=self._ahead):
                good += [row for row, problem in read if not problem]
                problems += [problem for _, problem in read if problem]
                phi += [features(x)] if len(x) else []
        marks = [row.mark for row in good]
        return Part(self._sums(torch.cat(phi), good, torch.tensor(marks)), len(rows), problems, marks)

    def _sums(self, phi: Tensor, rows: Sequence[Row], marks: Tensor) -> BulkSums:
        y = torch.tensor([row.node for row in rows], dtype=torch.long)
        if self._task == "labels":
            found = self._learner.sum_up(phi, y, marks.long(), self._model.taxonomy)
        else:
            found = self._learner.sum_up_guesses(phi, y)
        return found.on_cpu()


def bulk_learner(model: Model) -> Amber:
    """The learner of a model; InputError if what it learns does not add up."""
    if not isinstance(model.learner, Amber):
        raise InputError(
            f"the method {model.config.method} can not learn in bulk: what it learns does not add up; use amber"
        )
    return model.learner
