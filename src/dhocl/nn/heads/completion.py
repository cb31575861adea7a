"""Completing labels downward: which of the classes below its label does an image show?

In a stream that drifts, the classes around now tell. The labels of samples nearby in the stream, before and after, give
a prior over the known classes below the label, and ridge regression a likelihood.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN

FLOOR = 5e-5  # prior weight of a class that did not occur nearby
DOUBT = 0.05  # prior weight of a class that is not known yet


def recency(times: Tensor, recent: Tensor, width: float) -> Tensor:
    """(n, m) exp(-|Δt| / width) between times (n,) and (m,), counted in samples; 0 beyond 6 widths and for itself."""
    distance = (times[:, None] - recent[None]).abs()
    return torch.exp(-distance / width) * ((distance <= 6 * width) & (distance > 0))


def nearby(kernel: Tensor, columns: Tensor, width: int) -> Tensor:
    """(n, C) weight of each class nearby: kernel (n, m), columns (m,) of the samples, -1 where unknown."""
    known = columns != UNKNOWN
    return kernel[:, known] @ F.one_hot(columns[known], width).to(kernel.dtype)


def soft_targets(prior: Tensor, z: Tensor, below: Tensor, placeless: Tensor) -> Tensor:
    """(n, C) targets of a level for samples with a coarser label; they sum to the trust in them, at most 1.

    Args:
        prior: (n, C) weight of each class nearby.
        z: (n, C) logits.
        below: (n, C) whether a class is known to lie below the label of the sample.
        placeless: (C,) whether it is unknown where a class lies: it could be below any label.

    q ∝ (prior + FLOOR) softmax(z) over the classes below. The rest of the trust is for classes that may lie there
    without our knowing: those without a place, and one that is still to come.
    """
    q = (prior + FLOOR) * z.masked_fill(~below, -torch.inf).softmax(1)
    q = (q / q.sum(1, keepdim=True)).where(below.any(1, keepdim=True), 0)  # no class below: 0 / 0
    inside, outside = (prior * below).sum(1, keepdim=True), prior[:, placeless].sum(1, keepdim=True)
    return q * inside / (inside + outside + DOUBT)


def evidence(prior: Tensor, columns: Tensor, parents: Tensor, own: Tensor) -> float:
    """Log-likelihood of the classes `columns` (n,) under priors (n, C), given their ancestors `own` (n,).

    parents (C,) are the ancestors of all classes. Σ log (prior_c + DOUBT) / (Σ prior + DOUBT (1 + number)), over the
    classes with the same ancestor.
    """
    same = parents[None] == own[:, None]  # (n, C)
    hit = prior.gather(1, columns[:, None])[:, 0] + DOUBT
    total = (prior * same).sum(1) + DOUBT * (1 + same.sum(1))
    return float((hit / total).log().sum())


def priors(kernel: Tensor, recent: Tensor, table: TreeTable, levels: Iterable[int]) -> dict[int, Tensor]:
    """(n, C) per level, weight of each class nearby: kernel (n, m) from `recency`, recent (m,) labels as nodes."""
    return {level: nearby(kernel, table.columns(recent, level), table.width(level)) for level in levels}


def complete(logits: dict[int, Tensor], y: Tensor, prior: dict[int, Tensor], table: TreeTable) -> dict[int, Tensor]:
    """Soft targets (n, C) of these levels, 0 for rows whose label is of this level or finer.

    Args:
        logits: (n, C) per level, of the samples.
        y: (n,) their labels, as nodes.
        prior: (n, C) per level, weight of each class.
        table: the tree.
    """
    own = table.node_levels[y]
    found = {}
    for level, z in logits.items():
        width = table.width(level)
        targets = z.new_zeros(len(y), width)
        for coarser in table.levels[: table.levels.index(level)]:
            rows = own == coarser
            if rows.any():
                parents = table.ancestors(level, coarser)
                below = parents[None] == table.columns(y[rows], coarser)[:, None]
                accepted = table.ancestors(level, level) == torch.arange(width, device=y.device)
                targets[rows] = soft_targets(prior[level][rows], z[rows], below & accepted, parents == UNKNOWN)
        found[level] = targets
    return found
