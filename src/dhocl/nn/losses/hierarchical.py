"""Losses that use the tree: hierarchical cross-entropy (HXE) and soft labels (Soft-CE), Bertinetto et al. 2020.

Both were designed for one softmax over the leaves of a fixed tree. Here HXE uses one softmax over the leaves known so
far. Soft-CE is applied to the head of each level, over the classes known so far.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.nn.losses.levels import Average, averaged


class Leaves(NamedTuple):
    """Classes of HXE's softmax: every class without a known child, with the logit of its level's head.

    On a complete tree these are the classes of the finest level. While the tree grows, a coarser class without a known
    child is a leaf too, and so is an unanchored class. A merged class gives its accepted class a second logit.
    """

    place: Tensor  # (n,) index in the concatenated logits of all levels, coarsest first
    paths: Tensor  # (n, levels) column of its ancestor (or itself) at each level, -1 where unknown


def leaves(taxonomy: Taxonomy) -> Leaves:
    def find() -> Leaves:
        nodes = torch.cat([taxonomy.nodes(level) for level in taxonomy.levels])
        parents = torch.cat([taxonomy.parent_nodes(level) for level in taxonomy.levels])
        place = (~torch.isin(taxonomy.resolve(nodes), parents)).nonzero()[:, 0]
        return Leaves(place, taxonomy.paths[nodes[place]])

    return taxonomy.derived("leaves", find)


def log_masses(logits: dict[int, Tensor], leaves: Leaves) -> dict[int, Tensor]:
    """log m (B, C) per level, m(c) = Σ exp z over the leaves at or below c; -inf for merged classes."""
    z = torch.cat(list(logits.values()), 1)[:, leaves.place]  # (B, n)
    masses = {}
    for (level, head), columns in zip(logits.items(), leaves.paths.to(z.device).t(), strict=True):
        below = columns != UNKNOWN
        masses[level] = _log_sums(z[:, below], columns[below], head.shape[1])
    return masses


def leaf_softmax(logits: dict[int, Tensor], leaves: Leaves) -> dict[int, Tensor]:
    """Probabilities (B, C) per level: p(c) = m(c) / Σ m over the classes of its level.

    This is one softmax over the leaves, summed along the tree. A leaf without an ancestor at a level is ignored at that
    level, and the level is normalised to 1.
    """
    return {level: mass.softmax(1) for level, mass in log_masses(logits, leaves).items()}


def hxe(
    logits: dict[int, Tensor], targets: Tensor, taxonomy: Taxonomy, alpha: float = 0.5, average: Average = "level"
) -> Tensor:
    """Σ_h λ_h mean of -log p(C^h | C^up), λ_h = exp(-α place), place 0 for the coarsest level.

    C^h is the row's class at h and C^up its parent: p(C^h | C^up) = m(C^h) / m(C^up), with m of `log_masses`. A class
    without a known parent is conditioned on its level: p(C^h) = m(C^h) / Σ m over the classes of level h. So an
    unanchored class does not compete with coarser leaves, since it may be below one of them. A row without a fine label
    contributes to its coarse levels only. logits (B, C) per level, targets (B, levels).

    On a complete tree this is the authors' loss up to one factor: they use exp(-α depth), depth 1 below the root, and
    divide by its sum over all nodes, which would lower the loss as the tree grows. λ depends on the level: the depth of
    a class changes when an intermediate class is added.
    """
    total = torch.zeros(())
    anchored = torch.zeros_like(targets[:, 0], dtype=torch.bool)
    parent = next(iter(logits.values())).new_zeros(len(targets))  # log m of the parent class of each anchored row
    for place, mass in enumerate(log_masses(logits, leaves(taxonomy)).values()):
        rows = (targets[:, place] != UNKNOWN).nonzero()[:, 0]
        own = mass[rows, targets[rows, place]]
        nll = torch.where(anchored[rows], parent[rows], mass[rows].logsumexp(1)) - own
        total = total + math.exp(-alpha * place) * averaged(nll.sum(), targets[:, place], average)
        anchored, parent = anchored.index_fill(0, rows, True), parent.index_copy(0, rows, own)
    return total


def _log_sums(z: Tensor, columns: Tensor, width: int) -> Tensor:
    """(B, n) and the column of each (n,) -> (B, width) log Σ exp of each column, -inf for empty columns."""
    filled, place = torch.unique(columns, return_inverse=True)
    empty = z.new_full((len(z), width), -torch.inf)
    top = empty[:, filled].scatter_reduce(1, place.expand_as(z), z.detach(), "amax")
    sums = torch.zeros_like(top).index_add(1, place, (z - top[:, place]).exp())
    return empty.index_copy(1, filled, top + sums.log())


def soft_ce(
    logits: dict[int, Tensor], targets: Tensor, taxonomy: Taxonomy, beta: float = 5.0, average: Average = "level"
) -> Tensor:
    """Σ_h mean of KL(q_y ‖ p^h), q_y(c) ∝ exp(-β d(c, y) / d_max), d the height of the lowest common ancestor.

    The distance of classes without a known common ancestor is d_max, that of the root.
    """
    total = torch.zeros(())
    for place, (level, z) in enumerate(logits.items()):
        rows = targets[:, place] != UNKNOWN
        if rows.any():
            q = soft_labels(taxonomy.distances(level, targets[rows, place]).to(z.device), place + 1, beta)  # (n, C)
            divergence = F.kl_div(F.log_softmax(z[rows], dim=1), q, reduction="sum")
            total = total + averaged(divergence, targets[:, place], average)
    return total


def soft_labels(heights: Tensor, largest: int, beta: float) -> Tensor:
    """(n, C) heights -> distributions; a larger β gives harder labels."""
    return (-beta * heights / largest).softmax(1)
