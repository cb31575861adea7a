"""Metrics as pure functions. Accuracies are fractions; the evaluator converts them to percent."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dhocl.core.taxonomy import UNKNOWN


def accuracy(predicted: Tensor, true: Tensor) -> float:
    """Fraction of equal entries of (n,) and (n,).

    >>> accuracy(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 2, 0]))
    0.75
    """
    return (predicted == true).double().mean().item()


def severity(predicted: Tensor, true: Tensor, heights: Tensor) -> tuple[float, float | None]:
    """Mistake severity: mean height of the lowest common ancestor of predicted and true leaf.

    Args:
        predicted: (n,) leaf columns.
        true: (n,) leaf columns.
        heights: (C, C) heights, from `Taxonomy.distances`.

    Returns:
        The mean over all images (MS of the HALO paper), and over the mistakes (Bertinetto et al. 2020; None if there
        are none). MS = (1 - accuracy) x severity of mistakes.

    >>> severity(torch.tensor([0, 1]), torch.tensor([0, 0]), torch.tensor([[0, 2], [2, 0]]))
    (1.0, 2.0)
    """
    height = heights[predicted, true].double()
    wrong = predicted != true
    return height.mean().item(), height[wrong].mean().item() if wrong.any() else None


def hierarchical_f1(predicted: Tensor, true: Tensor) -> tuple[float, float, float]:
    """Hierarchical precision, recall and F1 (Kiritchenko et al. 2006), as HiClass computes them.

    Args:
        predicted: (n, levels) columns, -1 for none: each row is a set P with at most one class per level.
        true: (n, levels) columns, -1 for none: sets T.

    Returns:
        hP = Σ|P ∩ T| / Σ|P|, hR = Σ|P ∩ T| / Σ|T| over all rows, and their harmonic mean.

    >>> hierarchical_f1(torch.tensor([[0, 3], [1, 2]]), torch.tensor([[0, 3], [1, 4]]))
    (0.75, 0.75, 0.75)
    """
    both = ((predicted == true) & (true != UNKNOWN)).sum().item()
    precision, recall = (both / max(1, (side != UNKNOWN).sum().item()) for side in (predicted, true))
    return precision, recall, 2 * precision * recall / (precision + recall) if both else 0.0


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """Expected calibration error: confidence (n,) of the predictions, correct (n,) whether they were right.

    >>> calibration_error(torch.tensor([0.5, 0.5]), torch.tensor([True, False]))
    0.0
    """
    place = (confidence * bins).long().clamp(0, bins - 1)
    gap = torch.zeros(bins, dtype=torch.double)
    gap.index_add_(0, place, confidence.double() - correct.double())
    return (gap.abs().sum() / len(confidence)).item()


def correlation(a: Tensor, b: Tensor) -> float | None:
    """Pearson correlation of two vectors (n,); None if one of them is constant."""
    a, b = a.double() - a.double().mean(), b.double() - b.double().mean()
    scale = (a.square().sum() * b.square().sum()).sqrt()
    return (a @ b / scale).item() if scale > 0 else None


def area(curve: Sequence[float | None]) -> float | None:
    """Mean over the evaluations that have a value: A_AUC of i-Blurry.

    >>> area([None, 40.0, 60.0])
    50.0
    """
    values = [value for value in curve if value is not None]
    return sum(values) / len(values) if values else None


def forgetting(curve: Sequence[float | None]) -> float | None:
    """Best value minus last value.

    >>> forgetting([40.0, 60.0, 55.0])
    5.0
    """
    values = [value for value in curve if value is not None]
    return max(values) - values[-1] if values else None


def class_accuracy(predicted: Tensor, true: Tensor, classes: Tensor) -> list[float | None]:
    """Accuracy of predicted (n,) and true (n,) for each class of `classes` (C,); None for a class without images."""
    width = int(classes.max()) + 1
    count, right = (torch.bincount(of, minlength=width)[classes] for of in (true, true[predicted == true]))
    return [hits / n if n else None for hits, n in zip(right.tolist(), count.tolist(), strict=True)]


def last_forgetting(ends: Sequence[Sequence[float | None]]) -> float | None:
    """F_last of i-Blurry: best accuracy at an earlier group end minus the last, averaged over classes.

    Args:
        ends: accuracy of each class at each group end. Later ends may have more classes.

    Classes whose accuracy was 0 at all earlier ends are left out.
    """
    *earlier, last = ends or [[]]
    lost = []
    for place, now in enumerate(last):
        best = max((accuracies[place] or 0 for accuracies in earlier if place < len(accuracies)), default=0)
        if best > 0 and now is not None:
            lost.append(best - now)
    return sum(lost) / len(lost) if lost else None


def pw_jaccard(predicted: Tensor, true: Tensor) -> float:
    """Precision-weighted Jaccard similarity of IIRC, averaged over images.

    predicted, true (n, levels) columns, -1 for none: each row is a set with at most one class per level. The similarity
    of sets P and T is |P ∩ T| / |P ∪ T| x |P ∩ T| / |P|, and 0 where P is empty.
    """
    both = ((predicted == true) & (true != UNKNOWN)).sum(1).double()
    size = (predicted != UNKNOWN).sum(1)
    union = size + (true != UNKNOWN).sum(1) - both
    return (both / union.clamp(min=1) * both / size.clamp(min=1)).mean().item()
