"""How good a prediction is, as pure functions. Accuracies are shares; summaries are percent, as in the paper."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dhocl.taxonomy import UNKNOWN


def accuracy(predicted: Tensor, true: Tensor) -> float:
    """Share of equal entries of (n,) and (n,)."""
    return (predicted == true).double().mean().item()


def severity(predicted: Tensor, true: Tensor, heights: Tensor) -> tuple[float, float | None]:
    """Mean LCA height between predicted and true leaf over all images, and over the mistakes alone, if there are any.

    predicted, true (n,) leaf columns; heights (C, C). The first is the paper's MS, the second Bertinetto's severity:
    MS = (1 - accuracy) x severity of mistakes.
    """
    height = heights[predicted, true].double()
    wrong = predicted != true
    return height.mean().item(), height[wrong].mean().item() if wrong.any() else None


def hierarchical_f1(predicted: Tensor, true: Tensor) -> tuple[float, float, float]:
    """Hierarchical precision, recall and F1 (Kiritchenko et al. 2006), as HiClass computes them.

    predicted, true (n, levels) columns, UNKNOWN for none: each row is a set with at most one class of a level.
    hP = Σ|P ∩ T| / Σ|P|, hR = Σ|P ∩ T| / Σ|T| over all rows, F1 their harmonic mean.
    """
    both = ((predicted == true) & (true != UNKNOWN)).sum().item()
    precision, recall = (both / max(1, (side != UNKNOWN).sum().item()) for side in (predicted, true))
    return precision, recall, 2 * precision * recall / (precision + recall) if both else 0.0


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """Expected calibration error: (n,) confidence of the prediction, (n,) whether it was right."""
    place = (confidence * bins).long().clamp(0, bins - 1)
    gap = torch.zeros(bins, dtype=torch.double)
    gap.index_add_(0, place, confidence.double() - correct.double())
    return (gap.abs().sum() / len(confidence)).item()


def correlation(a: Tensor, b: Tensor) -> float | None:
    """Pearson's, of two equally long vectors; None where one of them does not vary."""
    a, b = a.double() - a.double().mean(), b.double() - b.double().mean()
    scale = (a.square().sum() * b.square().sum()).sqrt()
    return (a @ b / scale).item() if scale > 0 else None


def area(curve: Sequence[float | None]) -> float | None:
    """Mean over the evaluations that have a value: the A_AUC of i-Blurry."""
    values = [value for value in curve if value is not None]
    return sum(values) / len(values) if values else None


def forgetting(curve: Sequence[float | None]) -> float | None:
    """Best minus last."""
    values = [value for value in curve if value is not None]
    return max(values) - values[-1] if values else None


def class_accuracy(predicted: Tensor, true: Tensor, classes: Tensor) -> list[float | None]:
    """Share of equal entries of (n,) and (n,) among those of each class in `classes` (C,); None where there is none."""
    width = int(classes.max()) + 1
    count, right = (torch.bincount(of, minlength=width)[classes] for of in (true, true[predicted == true]))
    return [hits / n if n else None for hits, n in zip(right.tolist(), count.tolist(), strict=True)]


def last_forgetting(ends: Sequence[Sequence[float | None]]) -> float | None:
    """F_last of i-Blurry: best accuracy at an earlier group end minus the last, averaged over classes.

    `ends` holds the accuracy of each class at each group end; classes are appended, so later ones may be longer. A
    class that never was above 0 before the last end has nothing to forget and does not count.
    """
    *earlier, last = ends or [[]]
    lost = []
    for place, now in enumerate(last):
        best = max((accuracies[place] or 0 for accuracies in earlier if place < len(accuracies)), default=0)
        if best > 0 and now is not None:
            lost.append(best - now)
    return sum(lost) / len(lost) if lost else None


def pw_jaccard(predicted: Tensor, true: Tensor) -> float:
    """IIRC's precision-weighted Jaccard similarity of two sets of classes, averaged over images.

    predicted, true (n, levels) columns: a set holds at most one class of a level, UNKNOWN stands for none. Of an image
    with the sets P and T it is |P & T| / |P | T| x |P & T| / |P|, and 0 where P is empty.
    """
    both = ((predicted == true) & (true != UNKNOWN)).sum(1).double()
    size = (predicted != UNKNOWN).sum(1)
    union = size + (true != UNKNOWN).sum(1) - both
    return (both / union.clamp(min=1) * both / size.clamp(min=1)).mean().item()
