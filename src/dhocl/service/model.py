"""The classifier with all that a checkpoint of the service holds beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dhocl import checkpoint
from dhocl.classifier import Classifier
from dhocl.decode import known_paths
from dhocl.errors import InputError
from dhocl.knowledge.source import from_json
from dhocl.service.beliefs import Beliefs, believe, described
from dhocl.service.calibration import Sharpness, gradients
from dhocl.service.progress import Progress
from dhocl.taxonomy import UNKNOWN, Label, Taxonomy


class Model:
    """Changed by one thread alone; the others read its `view`."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier
        self.ranks = list(classifier.levels)
        self.applied = 0  # number of the last entry that went in, or was refused
        self.step = 0  # micro-batches
        self.learned = 0
        self.refused = 0
        self.progress = Progress(self.ranks)
        self._betas = {level: Sharpness() for level in range(len(self.ranks))}
        self._path_beta = Sharpness()

    @property
    def taxonomy(self) -> Taxonomy:
        return self.classifier.taxonomy

    def learn(self, images: Sequence[np.ndarray], labels: Sequence[tuple[str, str]]) -> list[dict[str, Any] | None]:
        """Learn a micro-batch; what was predicted of each image before, at the rank of its label."""
        guesses = self._judge(images, [Label(name, self.ranks.index(rank)) for name, rank in labels])
        self.classifier.learn(images, labels)
        self.learned += len(labels)
        self.progress.mark(self.learned)
        return guesses

    def revise(self, revision: dict[str, Any]) -> None:
        """Apply a revision of the tree; what it refuses is an InputError."""
        match revision:
            case {"kind": "link", "child": child, "parent": parent}:
                self.classifier.link(_pair(child), _pair(parent))
            case {"kind": "unlink", "child": child}:
                self.classifier.unlink(_pair(child))
            case {"kind": "add", "class": label, "parent": parent}:
                self.classifier.add(_pair(label), _pair(parent))
            case {"kind": "rename", "class": label, "to": name}:
                self.classifier.rename(_pair(label), name)
            case {"kind": "merge", "class": label, "into": name}:
                self.classifier.merge(_pair(label), (name, label["rank"]))
            case {"kind": "answer", "said": said}:
                self.classifier.hear(map(from_json, said))
            case _:
                raise InputError("there is no such revision")

    def view(self) -> View:
        betas = {level: sharpness.beta for level, sharpness in self._betas.items()}
        return View(self, betas, self._path_beta.beta)

    def save(self, folder: Path) -> None:
        checkpoint.save(folder, self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        service = {
            "applied": self.applied,
            "step": self.step,
            "learned": self.learned,
            "refused": self.refused,
            "progress": self.progress.state_dict(),
            "betas": {str(level): sharpness.state_dict() for level, sharpness in self._betas.items()},
            "path_beta": self._path_beta.state_dict(),
        }
        return {"classifier": self.classifier.state_dict(), "service": service}

    @classmethod
    def load(cls, folder: Path) -> Model | None:
        """As the newest whole checkpoint has it."""
        state = checkpoint.load_newest(folder)
        if state is None:
            return None
        model, service = cls(Classifier.from_state(state["classifier"])), state["service"]
        for name in ("applied", "step", "learned", "refused"):
            setattr(model, name, service[name])
        model.progress.load_state_dict(service["progress"])
        for level, sharpness in model._betas.items():
            sharpness.load_state_dict(service["betas"][str(level)])
        model._path_beta.load_state_dict(service["path_beta"])
        return model

    def _judge(self, images: Sequence[np.ndarray], labels: Sequence[Label]) -> list[dict[str, Any] | None]:
        """Predict before learning: count what is right at the label's rank and at those above it, and calibrate.

        A class that is met for the first time counts as a mistake, for nobody could know it.
        """
        tree = self.taxonomy
        known = [row for row, label in enumerate(labels) if label in tree]
        for row in set(range(len(labels))) - set(known):
            self.progress.add(self.ranks[labels[row].level], False)
        if not len(tree):
            return [None] * len(labels)
        betas = {level: sharpness.beta for level, sharpness in self._betas.items()}
        p = self.classifier.probabilities(images)
        beliefs = believe(p, known_paths(tree), betas, self._path_beta.beta)
        if known:
            self._compare(beliefs, known, torch.tensor([tree.id(labels[row]) for row in known]))
        return [self._guess(beliefs, row, label) for row, label in enumerate(labels)]

    def _compare(self, beliefs: Beliefs, rows: list[int], nodes: Tensor) -> None:
        """Beliefs of the images in these rows with their true nodes (n,)."""
        tree = self.taxonomy
        targets = tree.complete(nodes)  # (n, levels)
        for place, level in enumerate(tree.levels):
            columns = targets[:, place]
            named = columns != UNKNOWN
            p = beliefs.ranks[level][rows][named]
            for correct in (p.argmax(1) == columns[named]).tolist():
                self.progress.add(self.ranks[level], correct)
            true = one_hot(columns[named], p.shape[1]).bool()
            self._betas[level].update(gradients(p, true).tolist())
        places = torch.tensor([tree.levels.index(tree.labels[node].level) for node in nodes.tolist()])
        own = targets.gather(1, places[:, None])  # (n, 1)
        through = beliefs.paths.t()[places] == own  # (n, paths)
        self._path_beta.update(gradients(beliefs.posterior[rows], through).tolist())

    def _guess(self, beliefs: Beliefs, row: int, true: Label) -> dict[str, Any] | None:
        if true.level not in beliefs.ranks:
            return None
        tree = self.taxonomy
        probability, column = beliefs.ranks[true.level][row].max(0)
        node = int(tree.nodes(true.level)[int(column)])
        right = true in tree and node == tree.id(true)  # by whichever of its names
        return {"name": tree.labels[node].name, "probability": float(probability), "right": right}


class View:
    """A model as it stood after some micro-batch: it never changes, so any thread may read it."""

    def __init__(self, model: Model, betas: dict[int, float], path_beta: float) -> None:
        self._reader = model.classifier.reader()
        self.betas, self.path_beta = betas, path_beta
        self.ranks = model.ranks
        self.taxonomy = self._reader.taxonomy
        self.paths = known_paths(self.taxonomy) if len(self.taxonomy) else torch.empty(0, 0)
        self.applied = model.applied
        self.learned = model.learned
        self.refused = model.refused
        self.progress = model.progress.summary()
        self.history = model.progress.history

    def predict(self, images: Sequence[np.ndarray], confidence: float) -> list[dict[str, Any]]:
        beliefs = believe(self._reader.probabilities(images), self.paths, self.betas, self.path_beta)
        return [described(beliefs, row, self.taxonomy, self.ranks, confidence) for row in range(len(images))]


def _pair(label: dict[str, str]) -> tuple[str, str]:
    return label["name"], label["rank"]
