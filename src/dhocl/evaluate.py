"""The judge: the only place beside the knowledge source that sees the true tree."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dhocl.backbones.parts import PART
from dhocl.data.dataset import Dataset
from dhocl.data.files import Files, read_ahead
from dhocl.decode import decode_paths, folded
from dhocl.learner import Learner
from dhocl.metrics import (
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
from dhocl.taxonomy import UNKNOWN, Taxonomy

Scores = dict[str, Any]  # what one evaluation says, as it goes to curve.jsonl
Guesses = dict[int, tuple[Tensor, Tensor]]  # per level the highest probability (n,) and its column (n,)

CHUNK = 32 * PART  # pixels predicted at once: 4,096 images of 64 px


POPULATIONS = {
    "": "Test images whose class has been streamed, at each level where it is known: the paper's “all seen classes”.",
    "open": "All test images, at each level where their class is known, even if their finer class was never streamed.",
}


def populations(nodes: Tensor, streamed: Tensor, tree: Taxonomy) -> dict[str, Tensor]:
    """Which test images are evaluated, as POPULATIONS says: by name, (n,) booleans.

    nodes (n,) are the true nodes of the test images, streamed (m,) those of the training images so far. A class has
    been streamed if an image of it, or of a class below it, has come, labelled at whichever level.
    """
    seen = {node for leaf in torch.unique(streamed).tolist() for node in tree.lineage(leaf)}
    return {
        "": torch.isin(nodes, torch.tensor(sorted(seen), dtype=torch.long)),
        "open": torch.ones(len(nodes), dtype=torch.bool),
    }


class Evaluator:
    """Scores a learner on test images, in two populations (`populations`).

    Images in memory are held as fixed chunks, so that a learner recognises them and computes frozen features only
    once; those that stay in their files are read anew each time.
    """

    def __init__(self, dataset: Dataset) -> None:
        tree, test = dataset.tree, dataset.test
        self._tree = tree
        self._images = test.images
        pixels = test.images.nbytes // (3 * len(test.images))  # of an image
        at_once = max(1, CHUNK // pixels)
        self._rows = torch.split(torch.arange(len(test.images)), at_once)
        self._kept = [] if isinstance(test.images, Files) else list(torch.split(test.images, at_once))
        self._nodes = test.nodes
        self._truth = tree.paths[test.nodes]  # (n, levels) true columns
        self._heights = tree.distances(tree.levels[-1]).to(torch.uint8)

    def __call__(
        self, learner: Learner, taxonomy: Taxonomy, streamed: Tensor, sets: bool = False, classes: bool = False
    ) -> Scores:
        """Scores of the images whose class was streamed; under "open" those of all images.

        `streamed` holds true nodes of the training images so far. Both sets of scores hold, under "path", those of
        path-consistent decoding. With `sets` also pw-JS, with `classes` also the accuracy of each class: what settings
        of earlier work ask for.
        """
        plain, decoded = [], []
        for x in self._kept or read_ahead(self._images, self._rows):
            probabilities = folded(learner.predict(x), taxonomy)
            plain.append(_best(probabilities))
            decoded.append(_best(decode_paths(probabilities, taxonomy)))
        guesses, path = _join(plain), _join(decoded)
        scores: Scores = {}
        for name, members in populations(self._nodes, streamed, self._tree).items():
            own = self._judge(guesses, members, taxonomy, sets, classes)
            own["path"] = self._judge(path, members, taxonomy, sets, classes)
            scores |= {name: own} if name else own
        return scores

    def _judge(self, guesses: Guesses, members: Tensor, taxonomy: Taxonomy, sets: bool, classes: bool) -> Scores:
        """Scores of the test images in `members` (n,)."""
        levels: dict[str, float] = {}
        calibration: dict[str, float] = {}
        predictions = torch.full_like(self._truth, UNKNOWN)
        judged = torch.zeros_like(self._truth, dtype=torch.bool)
        scores: Scores = {"level_accuracy": levels, "level_ece": calibration}
        for level, (confidence, column) in guesses.items():
            place = self._tree.levels.index(level)
            truth = self._truth[:, place]
            true_columns = self._true_columns(level, taxonomy)
            judged[:, place] = known = members & torch.isin(truth, true_columns) & (truth != UNKNOWN)
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
        some = judged.any(1)
        if some.any():
            shares = hierarchical_f1(predictions[some], self._truth.where(judged, UNKNOWN)[some])
            scores |= dict(zip(("h_precision", "h_recall", "h_f1"), (100 * share for share in shares), strict=True))
            scores["path_consistency"] = 100 * self._consistency(predictions[members], list(guesses))
        if sets:
            scores["pw_js"] = self._set_similarity(predictions, judged)
        if classes:
            scores["class_accuracy"] = {
                str(level): self._class_accuracy(level, predictions, judged, taxonomy) for level in guesses
            }
        return scores

    def _set_similarity(self, predictions: Tensor, judged: Tensor) -> float | None:
        """pw-JS over the images that have a known class; predictions, judged (n, levels)."""
        some = judged.any(1)
        predicted, true = (side.where(judged, UNKNOWN)[some] for side in (predictions, self._truth))
        return 100 * pw_jaccard(predicted, true) if some.any() else None

    def _class_accuracy(
        self, level: int, predictions: Tensor, judged: Tensor, taxonomy: Taxonomy
    ) -> list[float | None]:
        """By column of the known tree, None for a class without a test image."""
        place = self._tree.levels.index(level)
        rows = judged[:, place]
        columns = self._true_columns(level, taxonomy)
        shares = class_accuracy(predictions[rows, place], self._truth[rows, place], columns)
        return [None if share is None else 100 * share for share in shares]

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
    """The paper's five numbers and more from all evaluations of a run.

    Plain, with path decoding ("path.AAUC"), over all test images ("open.AAUC") and both ("open.path.AAUC"). Evaluations
    that were made only because a group ended do not enter areas.
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
    areas = {
        "AAUC": "accuracy",
        "FAUC": "fine_accuracy",
        "MS": "ms",
        "ms_mistakes": "ms_mistakes",
        "lca_distance": "lca_distance",
        "h_precision": "h_precision",
        "h_recall": "h_recall",
        "h_f1": "h_f1",
        "path_consistency": "path_consistency",
    }
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
    """i-Blurry's and HLE's numbers of each level, and IIRC's; `ends` are the evaluations at the ends of groups."""
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
