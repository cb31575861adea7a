"""The model of a service, and the counts that are stored in its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dhocl.classifier.prediction import FALSE_ALARMS, Prediction, name_predictions
from dhocl.classifier.restriction import Restriction
from dhocl.core import checkpoint
from dhocl.core.decode import Beliefs, Decoding, restricted
from dhocl.core.errors import InputError, usable
from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy
from dhocl.knowledge.source import from_json
from dhocl.model import Model, Revision
from dhocl.service.progress import Progress

COUNTS = ("applied", "step", "learned", "refused", "deleted", "relabelled")


class ServedModel:
    """A model with counts. Only one thread changes it; the others read a `Snapshot`."""

    def __init__(self, model: Model, batch: int = 32) -> None:
        model.config = replace(model.config, calibrate=True)  # a model that comes from a run may not
        self.model = model
        self.batch = batch  # largest number of observations in a step
        self.ranks = list(model.config.levels)
        self.applied = 0  # number of the last entry that was applied or refused
        self.step = 0  # micro-batches
        self.learned = 0
        self.refused = 0
        self.deleted = 0  # of those learned
        self.relabelled = 0
        self.progress = Progress(self.ranks)

    @property
    def taxonomy(self) -> Taxonomy:
        return self.model.taxonomy

    def learn(
        self,
        images: Sequence[np.ndarray],
        labels: Sequence[tuple[str, str]],
        outcomes: Sequence[dict[str, Any]] | None = None,
    ) -> list[dict[str, Any]]:
        """Learn a micro-batch of images (size, size, 3) uint8 with labels (name, rank).

        Returns the outcome of each: what was predicted before learning at the rank of its label; by rank, whether the
        prediction was right; and by rank, the nodes of the true and the predicted class if they differ. When it is
        learned again after a crash, `outcomes` are those of the first time: what was predicted then counts.
        """
        named = [Label(name, self.ranks.index(rank)) for name, rank in labels]
        known = [label in self.taxonomy for label in named]
        before = self.model.observe(as_tensor(images), named).before
        if outcomes is None:
            outcomes = [self._outcome(before, row, label, known[row]) for row, label in enumerate(named)]
        for outcome in outcomes:
            for rank, right in outcome["right"].items():
                self.progress.add(rank, right)
            for rank, (true, predicted) in outcome.get("confused", {}).items():
                self.progress.confuse(rank, true, predicted)
        self.learned += len(labels)
        self.progress.mark(self.learned)
        return list(outcomes)

    def correct(self, image: np.ndarray, old: tuple[str, str], new: tuple[str, str] | None) -> None:
        """Forget an observation with its label (name, rank), and learn it with a new one, if there is one.

        Its prediction before learning still counts: accuracy is about what was predicted when the labels came.
        """
        x = as_tensor([image])
        given, *more = (Label(name, self.ranks.index(rank)) for name, rank in (old, *([new] if new else [])))
        if more:
            self.model.relabel(x, [given], more)
            self.relabelled += 1
        else:
            self.model.forget(x, [given])
            self.deleted += 1

    def _outcome(self, before: Beliefs | None, row: int, true: Label, known: bool) -> dict[str, Any]:
        """A new class counts as a mistake at its rank. Else ranks above count too, where the class was known before."""
        right = {} if known else {self.ranks[true.level]: False}
        if before is None:
            return {"predicted": None, "right": right}
        tree = self.taxonomy  # has grown since `before`, but columns never move
        confused = {}
        for level, column in zip(tree.levels, tree.paths[tree.id(true)].tolist(), strict=True):
            if known and level in before.levels and UNKNOWN != column < before.levels[level].shape[1]:
                found = int(before.levels[level][row].argmax())
                right[self.ranks[level]] = found == column
                if found != column:
                    confused[self.ranks[level]] = tree.nodes(level)[[column, found]].tolist()
        return {"predicted": self._guess(before, row, true), "right": right, "confused": confused}

    def _guess(self, before: Beliefs, row: int, true: Label) -> dict[str, Any] | None:
        """The most probable class of the label's rank, and whether it was right."""
        if true.level not in before.levels:
            return None
        tree = self.taxonomy
        probability, column = before.levels[true.level][row].max(0)
        node = int(tree.nodes(true.level)[int(column)])
        return {"name": tree.labels[node].name, "probability": float(probability), "right": node == tree.id(true)}

    def revise(self, revision: dict[str, Any]) -> None:
        """Apply a revision of the tree. InputError if the tree refuses it."""
        match revision:
            case {"kind": "link" | "add" as kind, "parent": parent}:
                child = revision["child" if kind == "link" else "class"]
                self.model.revise(Revision(kind, self._label(child), self._label(parent)))
            case {"kind": "unlink", "child": child}:
                self.model.revise(Revision("unlink", self._label(child)))
            case {"kind": "rename", "class": label, "to": name} | {"kind": "merge", "class": label, "into": name}:
                other = Label(name, self._label(label).level)
                self.model.revise(Revision(revision["kind"], self._label(label), other))
            case {"kind": "answer", "said": statements}:
                self.model.apply(map(from_json, statements))
            case _:
                raise InputError("unknown kind of revision")

    def _label(self, label: dict[str, str]) -> Label:
        return Label(label["name"], self.ranks.index(label["rank"]))

    def save(self, folder: Path, make_folder: bool = True) -> None:
        checkpoint.save(folder, self.state_dict(), make_folder)

    def state_dict(self) -> dict[str, Any]:
        service = {name: getattr(self, name) for name in COUNTS}
        service["progress"] = self.progress.state_dict()
        return {"model": self.model.state_dict(), "batch": self.batch, "service": service}

    @classmethod
    def load(cls, folder: Path, device: str = "auto") -> ServedModel | None:
        """From the newest intact checkpoint of a service, a run or a saved classifier; None if there is none."""
        state = checkpoint.load_newest(folder)
        return None if state is None else cls.from_state(state, folder, device)

    @classmethod
    def from_state(cls, state: dict[str, Any], place: Path | str, device: str = "auto") -> ServedModel:
        """From the state of a checkpoint at `place`. InputError if it can not be used."""
        with usable(place, checkpoint.ADVICE):
            served = cls(Model.from_state(state["model"], device=device), state["batch"])
            if service := state.get("service"):
                service = {"deleted": 0, "relabelled": 0} | service  # earlier versions had no corrections
                for name in COUNTS:
                    setattr(served, name, service[name])
                served.progress.load_state_dict(service["progress"])
            return served


class Asked(NamedTuple):
    """What a request wants to know of its images."""

    images: int
    confidence: float = 0.0  # least probability of the answer
    top: int = 1  # classes per rank
    decode: Decoding = "path"
    restriction: Restriction = Restriction()
    false_alarms: float = FALSE_ALARMS


class Snapshot:
    """A served model after a micro-batch. It never changes, so any thread may read it.

    Args:
        served: the model.
        lagging: its predictions may lack the last samples, as there are more to learn.
    """

    def __init__(self, served: ServedModel, lagging: bool = False) -> None:
        self._reader = served.model.reader(lagging)
        self.ranks = served.ranks
        self.taxonomy = self._reader.taxonomy
        self.applied = served.applied
        self.learned = served.learned
        self.refused = served.refused
        self.deleted = served.deleted
        self.relabelled = served.relabelled
        self.progress = served.progress.summary()
        self.history = served.progress.history
        self.confusions = served.progress.confusions()

    def predict(self, images: Sequence[np.ndarray], asked: Sequence[Asked]) -> list[list[dict[str, Any]] | InputError]:
        """The predictions of each request, whose images follow one another; an error for one whose classes are none."""
        beliefs, start = self._reader.beliefs(as_tensor(images)), 0
        found: list[list[dict[str, Any]] | InputError] = []
        for each in asked:
            own = beliefs.rows(slice(start, start + each.images))
            start += each.images
            try:
                own = restricted(own, each.restriction.inside(self.taxonomy))
            except InputError as error:
                found.append(error)
                continue
            named = name_predictions(own, self.taxonomy, self.ranks, each.decode, each.top, each.false_alarms)
            found.append([prediction.to_json(each.confidence, each.decode) for prediction in named])
        return found

    def frozen_features(self, x: Tensor) -> Tensor | None:
        """(n, 3, size, size) uint8 -> (n, D), the same in all snapshots; None if the network is trained."""
        return self._reader.frozen_features(x)

    def suggest(self, x: Tensor, count: int) -> list[tuple[int, dict[str, Any]]]:
        """Rows of the images to label next, best first, with rank, scores and prediction.

        x: (n, 3, size, size) uint8, or their `frozen_features`.
        """
        found = self._reader.suggest(x, count)
        rows = [each.row for each in found]
        named: Sequence[Prediction | None] = [None] * len(rows)
        if rows and len(self.taxonomy):
            named = name_predictions(self._reader.beliefs(x[rows]), self.taxonomy, self.ranks)
        suggested = []
        for each, prediction in zip(found, named, strict=True):
            rank = self.ranks[each.level]
            guess = prediction.levels.get(rank) if prediction else None
            about = {
                "rank": rank,
                "guess": guess and guess.to_json(),
                "path": prediction.to_json()["path"] if prediction else [],
            }
            scores = {"score": each.score, "uncertainty": each.uncertainty, "novelty": each.novelty}
            suggested.append((each.row, about | scores))
        return suggested


def as_array(pixels: bytes, size: int) -> np.ndarray:
    """(size, size, 3) uint8"""
    return np.frombuffer(pixels, dtype=np.uint8).reshape(size, size, 3)


def as_tensor(images: Sequence[np.ndarray]) -> Tensor:
    """n images (size, size, 3) uint8 -> (n, 3, size, size)."""
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
