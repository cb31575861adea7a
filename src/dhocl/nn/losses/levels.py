"""Losses over level-wise logits. Logits are (B, classes) per level, targets (B, levels) columns with -1 for none.

The paper does not state how rows are averaged. `average="level"` divides the sum of each level by the number of rows
labelled there. Fewer rows have a fine label, so each of them has a larger weight: with three levels labelled equally
often, about three times as large at the finest level as at the coarsest. `average="sample"` divides by the number of
rows of the batch: all labelled (row, level) pairs have equal weight.
"""

from __future__ import annotations

import itertools
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.taxonomy import UNKNOWN, Taxonomy

Average = Literal["level", "sample"]


def multi_ce(logits: dict[int, Tensor], targets: Tensor, average: Average = "level") -> Tensor:
    """Σ_h mean over rows of CE(z^h, ỹ^h); a level without labels adds 0."""
    terms = [_nll(F.log_softmax(z, dim=1), targets[:, place], average) for place, z in enumerate(logits.values())]
    return torch.stack(terms).sum()


def mixture_nll(probabilities: dict[int, Tensor], targets: Tensor, average: Average = "level") -> Tensor:
    """`multi_ce` for probabilities instead of logits."""
    terms = [
        _nll(p.clamp_min(1e-12).log(), targets[:, place], average) for place, p in enumerate(probabilities.values())
    ]
    return torch.stack(terms).sum()


def given_nll(probabilities: dict[int, Tensor], nodes: Tensor, taxonomy: Taxonomy) -> Tensor:
    """(n,) cross-entropy of each row at the level it was labelled at; probabilities (n, classes) per level."""
    losses = next(iter(probabilities.values())).new_empty(len(nodes))
    for level, rows, columns in taxonomy.by_level(nodes):
        losses[rows] = -probabilities[level][rows, columns].clamp_min(1e-12).log()
    return losses


def js_consistency(logits: dict[int, Tensor], taxonomy: Taxonomy) -> Tensor:
    """Σ_h JS(p^h ‖ p̂^h), p̂^h the prediction of the next finer level, summed along the known tree; needs no labels.

    In a partial tree, p^h is restricted to classes with known children, p̂^h to those children, and both are
    renormalised. Levels with fewer than two such classes add 0. Both levels get gradients.
    """
    total = next(iter(logits.values())).new_zeros(())
    for coarse, fine, families in taxonomy.derived("families", lambda: _families(taxonomy)):
        p = logits[coarse][:, families.classes].softmax(1)  # (B, A)
        below = logits[fine][:, families.children].softmax(1)
        q = torch.zeros_like(p).index_add(1, families.place.to(p.device), below)
        total = total + jensen_shannon(p, q).mean()
    return total


class Families(NamedTuple):
    """Known links between two neighbouring levels."""

    classes: Tensor | slice  # (A,) of the coarser level, with known children
    children: Tensor | slice  # (n,) of the finer
    place: Tensor  # (n,) of each child's parent among `classes`


def _families(taxonomy: Taxonomy) -> list[tuple[int, int, Families]]:
    """(coarser level, finer level, links) of neighbouring levels with two parents or more."""
    found = []
    for coarse, fine in itertools.pairwise(taxonomy.levels):
        parents = taxonomy.ancestors(fine, coarse)
        children = (parents != UNKNOWN).nonzero()[:, 0]
        classes, place = torch.unique(parents[children], return_inverse=True)
        if len(classes) >= 2:
            widths = taxonomy.widths
            families = Families(_all_or(classes, widths[coarse]), _all_or(children, widths[fine]), place)
            found.append((coarse, fine, families))
    return found


def _all_or(columns: Tensor, width: int) -> Tensor | slice:
    """Ascending columns, as a slice if they are all columns, which avoids a copy."""
    return slice(None) if len(columns) == width else columns


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """½KL(p‖m) + ½KL(q‖m), m = (p+q)/2: (B, C) twice -> (B,), between 0 and ln 2."""
    log_m = ((p + q) / 2).clamp_min(1e-12).log()
    return 0.5 * sum((side * (side.clamp_min(1e-12).log() - log_m)).sum(1) for side in (p, q))  # type: ignore[return-value]


def haf(logits: dict[int, Tensor], targets: Tensor, taxonomy: Taxonomy, average: Average = "level") -> Tensor:
    """The paper's form of HAF: Σ_h CE + ½ JS."""
    return multi_ce(logits, targets, average) + 0.5 * js_consistency(logits, taxonomy)


def averaged(total: Tensor, columns: Tensor, average: Average) -> Tensor:
    """Sum over a level's labelled rows -> mean over these, or over all rows; columns (B,) with -1 for none."""
    rows = columns != UNKNOWN if average == "level" else torch.ones_like(columns)
    return total / rows.sum().clamp_min(1)


def _nll(log_p: Tensor, columns: Tensor, average: Average) -> Tensor:
    return averaged(F.nll_loss(log_p, columns, ignore_index=UNKNOWN, reduction="sum"), columns, average)
