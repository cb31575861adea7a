"""Evaluate a classifier on labelled images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dhocl.core.decode import Beliefs, Decoding
from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy
from dhocl.experiment.metrics import accuracy, calibration_error, hierarchical_f1, severity

WORST = 1000  # mistakes that are kept


class Rank(NamedTuple):
    """Results of one level, in percent. Images count whose true class at this level is known to the model."""

    level: str
    images: int
    unknown: int  # images whose class at this level the model has never met; they do not count
    accuracy: float | None
    ece: float | None  # expected calibration error


class ClassScore(NamedTuple):
    """Results of one class, in percent; None if it was never predicted, or never true."""

    name: str
    images: int
    predicted: int
    precision: float | None
    recall: float | None


class Confusion(NamedTuple):
    true: str
    predicted: str
    images: int


class Mistake(NamedTuple):
    row: int  # of the images
    true: dict[str, str]  # level -> name
    predicted: dict[str, str]
    probability: float  # of the predicted class at the finest level with a true one
    height: int  # levels from the finest true class up to one that is right


class Evaluation(NamedTuple):
    """How well a classifier does on labelled images. It prints as the accuracy of each level.

    Args:
        images: number of images.
        ranks: results of each level, coarsest first.
        ms: mistake severity, of images with a known class at the finest level: levels up to the common ancestor.
        ms_mistakes: the same over mistakes alone.
        h_f1: hierarchical F1 in percent, over the levels where a true class is known.
        classes: level -> results of each class that was true or predicted.
        confusions: level -> pairs of true and predicted class with their number, most frequent first.
        mistakes: the worst images: those with the highest common ancestor, of these the surest. At most 1000.
    """

    images: int
    ranks: list[Rank]
    ms: float | None
    ms_mistakes: float | None
    h_f1: float | None
    classes: dict[str, list[ClassScore]]
    confusions: dict[str, list[Confusion]]
    mistakes: list[Mistake]

    def __repr__(self) -> str:
        shown = (f"{rank.level} {rank.accuracy:.1f} %" for rank in self.ranks if rank.accuracy is not None)
        return f"Evaluation({', '.join([*shown, f'{self.images} images'])})"

    def to_json(self) -> dict[str, Any]:
        """The same as dicts and lists."""
        return {
            "images": self.images,
            "ranks": [rank._asdict() for rank in self.ranks],
            "ms": self.ms,
            "ms_mistakes": self.ms_mistakes,
            "h_f1": self.h_f1,
            "classes": {level: [score._asdict() for score in scores] for level, scores in self.classes.items()},
            "confusions": {level: [pair._asdict() for pair in pairs] for level, pairs in self.confusions.items()},
            "mistakes": [mistake._asdict() for mistake in self.mistakes],
        }


class Evaluator:
    """Collects predictions of a model whose tree does not change meanwhile."""

    def __init__(self, taxonomy: Taxonomy, levels: Sequence[str], decode: Decoding = "path") -> None:
        self._tree = taxonomy
        self._levels = levels
        self._decode = decode
        self._predicted: list[Tensor] = []  # (n, levels) columns
        self._confidence: list[Tensor] = []  # (n, levels)
        self._true: list[list[int]] = []  # rows of columns, -1 where there is no true class
        self._unknown = [0] * len(taxonomy.levels)

    def add(self, beliefs: Beliefs, truths: Sequence[Mapping[int, str]]) -> None:
        """Of each image the beliefs and the true names, level -> name. Ancestors follow from the tree of the model."""
        choices = beliefs.choices(self._decode).values()
        self._predicted.append(torch.stack([choice.column for choice in choices], 1))
        self._confidence.append(torch.stack([c.p.gather(1, c.column[:, None])[:, 0] for c in choices], 1).clamp_max(1))
        self._true += map(self._columns, truths)

    def _columns(self, truth: Mapping[int, str]) -> list[int]:
        tree, columns = self._tree, [UNKNOWN] * len(self._tree.levels)
        labels = {level: Label(name, level) for level, name in truth.items()}
        for label in labels.values():  # coarsest first, so that the finest known one decides about its ancestors
            if label in tree:
                above = tree.paths[tree.id(label)].tolist()
                columns = [new if new != UNKNOWN else old for old, new in zip(columns, above, strict=True)]
        for place, level in enumerate(tree.levels):
            if level in labels:  # what is stated overrides what follows from the tree
                known = labels[level] in tree
                columns[place] = tree.column(tree.id(labels[level])) if known else UNKNOWN
                self._unknown[place] += not known
        return columns

    def result(self) -> Evaluation:
        predicted, confidence, true = torch.cat(self._predicted), torch.cat(self._confidence), torch.tensor(self._true)
        known = true != UNKNOWN
        tree, names = self._tree, [self._levels[level] for level in self._tree.levels]
        ranks, classes, confusions = [], {}, {}
        for place, name in enumerate(names):
            rows = known[:, place]
            p, t = predicted[rows, place], true[rows, place]
            hits = p == t
            some = len(t) > 0
            share = 100 * accuracy(p, t) if some else None
            ece = 100 * calibration_error(confidence[rows, place], hits) if some else None
            ranks.append(Rank(name, len(t), self._unknown[place], share, ece))
            labels = [tree.labels[node].name for node in tree.nodes(tree.levels[place]).tolist()]
            classes[name] = _classes(p, t, labels)
            confusions[name] = _confusions(p, t, labels)
        finest = known[:, -1]
        ms, ms_mistakes = _severity(predicted[finest, -1], true[finest, -1], tree) if finest.any() else (None, None)
        shown = known.any(1)
        f1 = 100 * hierarchical_f1(predicted.where(known, UNKNOWN)[shown], true[shown])[2] if shown.any() else None
        mistakes = self._mistakes(predicted, true, confidence)
        return Evaluation(len(true), ranks, ms, ms_mistakes, f1, classes, confusions, mistakes)

    def _mistakes(self, predicted: Tensor, true: Tensor, confidence: Tensor) -> list[Mistake]:
        places, known, right = torch.arange(true.shape[1]).expand_as(true), true != UNKNOWN, predicted == true
        finest = places.where(known, UNKNOWN).amax(1)  # (n,)
        heights = finest - places.where(known & right, UNKNOWN).amax(1)
        sure = confidence.gather(1, finest.clamp_min(0)[:, None])[:, 0]
        wrong = (known & ~right).any(1).nonzero()[:, 0].tolist()
        wrong.sort(key=lambda row: (-int(heights[row]), -float(sure[row])))
        return [
            Mistake(
                row,
                self._named(true[row].tolist()),
                self._named(predicted[row].tolist()),
                float(sure[row]),
                int(heights[row]),
            )
            for row in wrong[:WORST]
        ]

    def _named(self, columns: list[int]) -> dict[str, str]:
        tree = self._tree
        return {
            self._levels[level]: tree.labels[int(tree.nodes(level)[column])].name
            for level, column in zip(tree.levels, columns, strict=True)
            if column != UNKNOWN
        }


def _severity(predicted: Tensor, true: Tensor, tree: Taxonomy) -> tuple[float, float | None]:
    """At the finest level, by the heights between the classes that occur."""
    columns, places = torch.unique(torch.cat([predicted, true]), return_inverse=True)
    heights = tree.distances(tree.levels[-1], columns)[:, columns]
    return severity(places[: len(true)], places[len(true) :], heights)


def _classes(predicted: Tensor, true: Tensor, names: Sequence[str]) -> list[ClassScore]:
    count, guessed, right = (
        torch.bincount(of, minlength=len(names)).tolist() for of in (true, predicted, true[predicted == true])
    )
    return [
        ClassScore(name, n, m, 100 * hits / m if m else None, 100 * hits / n if n else None)
        for name, n, m, hits in zip(names, count, guessed, right, strict=True)
        if n or m
    ]


def _confusions(predicted: Tensor, true: Tensor, names: Sequence[str]) -> list[Confusion]:
    """Right predictions included."""
    pairs, counts = torch.unique(torch.stack([true, predicted], 1), dim=0, return_counts=True)
    order = counts.argsort(descending=True, stable=True).tolist()
    return [Confusion(names[int(pairs[row, 0])], names[int(pairs[row, 1])], int(counts[row])) for row in order]
