"""Evaluation on test images. Beside the knowledge source, only the evaluator uses the true tree."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dhocl.core.decode import Beliefs, Decoding
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.data.dataset import Dataset
from dhocl.data.files import OnDemand, read_ahead
from dhocl.experiment.metrics import (
    accuracy,
    area,
    calibration_error,
    class_accuracy,
    forgetting,
    hierarchical_f1,
    last_forgetting,
    pw_jaccard,
    severity,
)
from dhocl.experiment.mistakes import Judged, mistakes
from dhocl.model import Model
from dhocl.nn.backbones.parts import PART

Scores = dict[str, Any]  # the results of one evaluation: a line of curve.jsonl
Guesses = dict[int, tuple[Tensor, Tensor]]  # per level the highest probability (n,) and its column (n,)

PIXELS_AT_ONCE = 32 * PART  # pixels predicted at once: 4,096 images of 64 px

POPULATIONS = {
    "": "Test images whose class has been streamed, at each level where it is known: the paper's “all seen classes”.",
    "open": "All test images, at each level where their class is known, even if their finer class was never streamed.",
}


def populations(nodes: Tensor, streamed: Tensor, tree: Taxonomy) -> dict[str, Tensor]:
    """The test images of each of POPULATIONS.

    A class has been streamed if an image of it or of a descendant has arrived, labelled at any level.

    Args:
        nodes: (n,) true nodes of the test images.
        streamed: (m,) true nodes of the training images so far.
        tree: the true tree.

    Returns:
        Name -> (n,) booleans.
    """
    seen = {node for leaf in torch.unique(streamed).tolist() for node in tree.lineage(leaf)}
    return {
        "": torch.isin(nodes, torch.tensor(sorted(seen), dtype=torch.long)),
        "open": torch.ones(len(nodes), dtype=torch.bool),
    }


class Evaluator:
    """Evaluates a model on the test images of a data set, in two populations (see `populations`).

    Images in memory are split into chunks once, so that a learner can cache the frozen features of a chunk. Others are
    read for each evaluation.

    Args:
        dataset: with test images and the true tree.
    """

    def __init__(self, dataset: Dataset) -> None:
        tree, test = dataset.tree, dataset.test
        self._tree = tree
        self._images = test.images
        pixels = test.images.nbytes // (3 * len(test.images))  # of an image
        at_once = max(1, PIXELS_AT_ONCE // pixels)
        self._rows = torch.split(torch.arange(len(test.images)), at_once)
        self._kept = [] if isinstance(test.images, OnDemand) else list(torch.split(test.images, at_once))
        self._nodes = test.nodes
        self._truth = tree.paths[test.nodes]  # (n, levels) true columns
        self._heights = tree.distances(tree.levels[-1]).to(torch.uint8)

    def __call__(self, model: Model, streamed: Tensor, sets: bool = False, classes: bool = False) -> Scores:
        """Evaluate a model.

        Args:
            model: the model.
            streamed: (m,) true nodes of the training images so far.
            sets: also compute pw-JS, for IIRC.
            classes: also compute the accuracy of each class, for i-Blurry and HLE.

        Returns:
            Scores of the images whose class was streamed; under "open" those of all images. Both have the scores of
            path decoding under "path".
        """
        taxonomy, plain, decoded = model.taxonomy, [], []
        for x in self._kept or read_ahead(self._images, self._rows):
            beliefs = model.beliefs(x)
            plain.append(_chosen(beliefs, "level"))
            decoded.append(_chosen(beliefs, "path"))
        guesses, self._paths, self._streamed = _join(plain), _join(decoded), streamed
        scores: Scores = {}
        for name, members in populations(self._nodes, streamed, self._tree).items():
            own = self._score(guesses, members, taxonomy, sets, classes)
            own["path"] = self._score(self._paths, members, taxonomy, sets, classes)
            scores |= {name: own} if name else own
        return scores

    def mistakes(self, taxonomy: Taxonomy) -> dict[str, Any]:
        """Those of the last evaluation by path, of the images whose class was streamed."""
        members = populations(self._nodes, self._streamed, self._tree)[""]
        predicted, true = torch.full_like(self._truth, UNKNOWN), torch.full_like(self._truth, UNKNOWN)
        sure = torch.zeros(self._truth.shape)
        for level, (confidence, column) in self._paths.items():
            place = self._tree.levels.index(level)
            columns, truth = self._true_columns(level, taxonomy), self._truth[:, place]
            known = members & torch.isin(truth, columns) & (truth != UNKNOWN)
            predicted[:, place], sure[:, place] = columns[column], confidence
            true[:, place] = truth.where(known, UNKNOWN)
        return mistakes(Judged(predicted, true, sure), self._tree, self._images)

    def _score(self, guesses: Guesses, members: Tensor, taxonomy: Taxonomy, sets: bool, classes: bool) -> Scores:
        """Scores of the test images in `members` (n,)."""
        levels: dict[str, float] = {}
        calibration: dict[str, float] = {}
        predictions = torch.full_like(self._truth, UNKNOWN)
        evaluated = torch.zeros_like(self._truth, dtype=torch.bool)
        scores: Scores = {"level_accuracy": levels, "level_ece": calibration}
        for level, (confidence, column) in guesses.items():
            place = self._tree.levels.index(level)
            truth = self._truth[:, place]
            true_columns = self._true_columns(level, taxonomy)
            evaluated[:, place] = known = members & torch.isin(truth, true_columns) & (truth != UNKNOWN)
            predictions[:, place] = predicted = true_columns[column]
            if known.any():
                hit = predicted[known] == truth[known]
                levels[str(level)] = 100 * accuracy(predicted[known], truth[known])
                calibration[str(level)] = 100 * calibration_error(confidence[known], hit)
            if level == self._tree.levels[-1] and known.any():
                scores["ms"], scores["ms_mistakes"] = severity(predicted[known], truth[known], self._heights)
                scores["lca_distance"] = scores["ms"] / len(self._tree.levels)
        scores["accuracy"] = sum(levels.values()) / len(levels) if levels else None
        scores["fine_accuracy"] = levels.get(str(self._tree.levels[-1]))
        some = evaluated.any(1)
        if some.any():
            shares = hierarchical_f1(predictions[some], self._truth.where(evaluated, UNKNOWN)[some])
            scores |= dict(zip(("h_precision", "h_recall", "h_f1"), (100 * share for share in shares), strict=True))
            scores["path_consistency"] = 100 * self._consistency(predictions[members], list(guesses))
        if sets:
            scores["pw_js"] = self._set_similarity(predictions, evaluated)
        if classes:
            scores["class_accuracy"] = {
                str(level): self._class_accuracy(level, predictions, evaluated, taxonomy) for level in guesses
            }
        return scores

    def _set_similarity(self, predictions: Tensor, evaluated: Tensor) -> float | None:
        """pw-JS over the images that have a known class; predictions, evaluated (n, levels)."""
        some = evaluated.any(1)
        predicted, true = (side.where(evaluated, UNKNOWN)[some] for side in (predictions, self._truth))
        return 100 * pw_jaccard(predicted, true) if some.any() else None

    def _class_accuracy(
        self, level: int, predictions: Tensor, evaluated: Tensor, taxonomy: Taxonomy
    ) -> list[float | None]:
        """By column of the known tree, None for a class without a test image."""
        place = self._tree.levels.index(level)
        rows = evaluated[:, place]
        columns = self._true_columns(level, taxonomy)
        shares = class_accuracy(predictions[rows, place], self._truth[rows, place], columns)
        return [None if share is None else 100 * share for share in shares]

    def _true_columns(self, level: int, taxonomy: Taxonomy) -> Tensor:
        """(classes known at this level,) their columns in the true tree."""
        return torch.tensor(
            [self._tree.column(self._tree.id(taxonomy.labels[node])) for node in taxonomy.nodes(level).tolist()]
        )

    def _consistency(self, predictions: Tensor, levels: list[int]) -> float:
        """Fraction of images whose predictions, (n, levels) true columns, are on one path of the true tree.

        The path is that of the finest predicted class. Levels where it has no class are ignored.
        """
        fine = max(levels)
        predicted = predictions[:, self._tree.levels.index(fine)]
        agree = torch.ones(len(predictions), dtype=torch.bool)
        for level in levels:
            above = self._tree.ancestors(fine, level)[predicted]
            agree &= (above == predictions[:, self._tree.levels.index(level)]) | (above == UNKNOWN)
        return agree.double().mean().item()


def _chosen(beliefs: Beliefs, decode: Decoding) -> Guesses:
    """The predicted classes alone, because all probabilities may not fit in memory."""
    choices = beliefs.choices(decode).items()
    return {level: (own.p.gather(1, own.column[:, None])[:, 0].clamp_max(1), own.column) for level, own in choices}


def _join(chunks: list[Guesses]) -> Guesses:
    return {
        level: (torch.cat([chunk[level][0] for chunk in chunks]), torch.cat([chunk[level][1] for chunk in chunks]))
        for level in chunks[0]
    }


def summarise(curve: list[Scores]) -> dict[str, Any]:
    """Summarise all evaluations of a run.

    Returns:
        The five metrics of the paper and others: plain ("AAUC"), with path decoding ("path.AAUC"), over all test images
        ("open.AAUC") and both ("open.path.AAUC"). Extra evaluations at the ends of groups do not enter averages over
        the stream.
    """
    summary: dict[str, Any] = {}
    for keys in ((), ("path",), ("open",), ("open", "path")):
        own = [_inner(scores, keys) | {"periodic": scores.get("periodic", True)} for scores in curve]
        regular = [scores for scores in own if scores["periodic"]] or own
        ends = [scores for scores in own if "class_accuracy" in scores]
        summary |= {".".join([*keys, name]): value for name, value in _summarise(regular, ends).items()}
    return summary


def _inner(scores: Scores, keys: tuple[str, ...]) -> Scores:
    for key in keys:
        scores = scores[key]
    return scores


def _summarise(curve: list[Scores], ends: list[Scores]) -> dict[str, Any]:
    last = curve[-1]
    levels = sorted({level for scores in curve for level in scores["level_accuracy"]}, key=int)
    same = ("ms_mistakes", "lca_distance", "h_precision", "h_recall", "h_f1", "path_consistency")
    areas = {"AAUC": "accuracy", "FAUC": "fine_accuracy", "MS": "ms"} | {name: name for name in same}
    summary = {name: area([scores.get(score) for scores in curve]) for name, score in areas.items()} | {
        "FFAcc": last["fine_accuracy"],
        "FAAcc": last["accuracy"],
        "level_accuracy": last["level_accuracy"],
        "level_auc": {h: area([scores["level_accuracy"].get(h) for scores in curve]) for h in levels},
        "level_forgetting": {h: forgetting([scores["level_accuracy"].get(h) for scores in curve]) for h in levels},
        "level_ece": last["level_ece"],
    }
    return summary | _of_earlier_work(curve, ends, levels) if "pw_js" in last else summary


def _of_earlier_work(curve: list[Scores], ends: list[Scores], levels: list[str]) -> dict[str, Any]:
    """Metrics of i-Blurry and HLE per level, and of IIRC; `ends` are the evaluations at the ends of groups."""
    last = curve[-1]
    return {
        "A_AUC": {h: area([scores["level_accuracy"].get(h) for scores in curve]) for h in levels},
        "A_last": last["level_accuracy"],
        "F_last": {h: last_forgetting([scores["class_accuracy"].get(h, []) for scores in ends]) for h in levels},
        "pw_js": {
            "mean": area([scores["pw_js"] for scores in curve]),
            "group_ends": area([scores["pw_js"] for scores in ends]),
            "last": last["pw_js"],
        },
    }
