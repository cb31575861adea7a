"""The judge: the only place beside the knowledge source that sees the true tree."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dhocl.data.dataset import Dataset
from dhocl.data.files import Files, read_ahead
from dhocl.decode import decode_paths
from dhocl.learner import Learner
from dhocl.metrics import accuracy, area, calibration_error, forgetting, severity
from dhocl.taxonomy import UNKNOWN, Taxonomy

Scores = dict[str, Any]  # what one evaluation says, as it goes to curve.jsonl
Guesses = dict[int, tuple[Tensor, Tensor]]  # per level the highest probability (n,) and its column (n,)

CHUNK = 250  # images predicted at once


class Evaluator:
    """Scores a learner on the test images whose class it could know by now.

    Images in memory are held as fixed chunks, so that a learner recognises them and computes frozen features only
    once; those that stay in their files are read anew each time.
    """

    def __init__(self, dataset: Dataset) -> None:
        tree, test = dataset.tree, dataset.test
        self._tree = tree
        self._images = test.images
        self._kept = [] if isinstance(test.images, Files) else list(torch.split(test.images, CHUNK))
        self._truth = tree.paths[test.nodes]  # (n, levels) true columns
        self._heights = tree.distances(tree.levels[-1]).to(torch.uint8)

    def __call__(self, learner: Learner, taxonomy: Taxonomy) -> Scores:
        """Plain scores, and under "path" those of path-consistent decoding."""
        plain, decoded = [], []
        for x in self._kept or read_ahead(self._images, torch.split(torch.arange(len(self._images)), CHUNK)):
            probabilities = learner.predict(x)
            plain.append(_best(probabilities))
            decoded.append(_best(decode_paths(probabilities, taxonomy)))
        return self._judge(_join(plain), taxonomy) | {"path": self._judge(_join(decoded), taxonomy)}

    def _judge(self, guesses: Guesses, taxonomy: Taxonomy) -> Scores:
        levels: dict[str, float] = {}
        calibration: dict[str, float] = {}
        predictions = torch.full_like(self._truth, UNKNOWN)
        scores: Scores = {"level_accuracy": levels, "level_ece": calibration}
        for level, (confidence, column) in guesses.items():
            place = self._tree.levels.index(level)
            truth = self._truth[:, place]
            true_columns = self._true_columns(level, taxonomy)
            known = torch.isin(truth, true_columns) & (truth != UNKNOWN)
            predictions[:, place] = predicted = true_columns[column]
            if known.any():
                hit = predicted[known] == truth[known]
                levels[str(level)] = 100 * accuracy(predicted[known], truth[known])
                calibration[str(level)] = 100 * calibration_error(confidence[known], hit)
            if level == self._tree.levels[-1] and known.any():
                scores["ms"], scores["ms_mistakes"] = severity(predicted[known], truth[known], self._heights)
        scores["accuracy"] = sum(levels.values()) / len(levels) if levels else None
        scores["fine_accuracy"] = levels.get(str(self._tree.levels[-1]))
        scores["path_consistency"] = 100 * self._consistency(predictions, list(guesses))
        return scores

    def _true_columns(self, level: int, taxonomy: Taxonomy) -> Tensor:
        """(classes known at this level,) their columns in the true tree."""
        return torch.tensor(
            [self._tree.column(self._tree.id(taxonomy.labels[node])) for node in taxonomy.nodes(level).tolist()]
        )

    def _consistency(self, predictions: Tensor, levels: list[int]) -> float:
        """Share of images whose predictions, (n, levels) true columns, lie on one path of the true tree.

        Judged from the finest predicted level up; a rank that the path lacks can not be contradicted.
        """
        fine = max(levels)
        predicted = predictions[:, self._tree.levels.index(fine)]
        agree = torch.ones(len(predictions), dtype=torch.bool)
        for level in levels:
            above = self._tree.ancestors(fine, level)[predicted]
            agree &= (above == predictions[:, self._tree.levels.index(level)]) | (above == UNKNOWN)
        return agree.double().mean().item()


def _best(probabilities: dict[int, Tensor]) -> Guesses:
    """All that is judged of the probabilities, which for many images and classes would fill the memory."""
    best = {level: p.max(1) for level, p in probabilities.items()}
    return {level: (top.values, top.indices) for level, top in best.items()}


def _join(chunks: list[Guesses]) -> Guesses:
    return {
        level: (torch.cat([chunk[level][0] for chunk in chunks]), torch.cat([chunk[level][1] for chunk in chunks]))
        for level in chunks[0]
    }


def summarise(curve: list[Scores]) -> dict[str, Any]:
    """The paper's five numbers and more from all evaluations of a run, plain and with path decoding."""
    summary = _summarise(curve)
    decoded = _summarise([scores["path"] for scores in curve])
    return summary | {f"path.{name}": value for name, value in decoded.items()}


def _summarise(curve: list[Scores]) -> dict[str, Any]:
    last = curve[-1]
    levels = sorted({level for scores in curve for level in scores["level_accuracy"]}, key=int)
    return {
        "AAUC": area([scores["accuracy"] for scores in curve]),
        "FAUC": area([scores["fine_accuracy"] for scores in curve]),
        "MS": area([scores.get("ms") for scores in curve]),
        "FFAcc": last["fine_accuracy"],
        "FAAcc": last["accuracy"],
        "ms_mistakes": area([scores.get("ms_mistakes") for scores in curve]),
        "level_accuracy": last["level_accuracy"],
        "level_auc": {h: area([scores["level_accuracy"].get(h) for scores in curve]) for h in levels},
        "level_forgetting": {h: forgetting([scores["level_accuracy"].get(h) for scores in curve]) for h in levels},
        "level_ece": last["level_ece"],
        "path_consistency": area([scores["path_consistency"] for scores in curve]),
    }
