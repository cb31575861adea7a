"""Losses that use the tree: hierarchical cross-entropy (HXE) and soft labels (Soft-CE), Bertinetto et al. 2020.

Both were made for one softmax over the leaves of a fixed tree. HXE keeps that softmax here, over the leaves known so
far. Soft-CE is applied to the head of each level, over the classes known so far.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.losses.levels import Average, averaged
from dhocl.taxonomy import UNKNOWN, Taxonomy


class Leaves(NamedTuple):
    """What HXE's softmax runs over: every class without a known child, scored by the head of its own level.

    On a complete tree these are the classes of the finest level. While the tree grows, a coarser class without a known
    child is a leaf too, and so is an unanchored class. A merged class's column is a second score of its accepted class.
    """

    place: Tensor  # (n,) among the logits of all levels, coarsest level first
    paths: Tensor  # (n, levels) column of its ancestor (or itself) at each level, -1 where unknown


def leaves(taxonomy: Taxonomy) -> Leaves:
    def look() -> Leaves:
        nodes = torch.cat([taxonomy.nodes(level) for level in taxonomy.levels])
        parents = torch.cat([taxonomy.parent_nodes(level) for level in taxonomy.levels])
        place = (~torch.isin(taxonomy.resolve(nodes), parents)).nonzero()[:, 0]
        return Leaves(place, taxonomy.paths[nodes[place]])

    return taxonomy.derived("leaves", look)


def log_masses(logits: dict[int, Tensor], leaves: Leaves) -> dict[int, Tensor]:
    """log m (B, C) per level, m(c) = Σ exp z over the leaves at or below c; -inf for merged classes."""
    z = torch.cat(list(logits.values()), 1)[:, leaves.place]  # (B, n)
    masses = {}
    for (level, head), columns in zip(logits.items(), leaves.paths.t(), strict=True):
        below = columns != UNKNOWN
        masses[level] = _log_sums(z[:, below], columns[below], head.shape[1])
    return masses


def leaf_softmax(logits: dict[int, Tensor], leaves: Leaves) -> dict[int, Tensor]:
    """Probabilities (B, C) per level: p(c) = m(c) / Σ m over the classes of its level.

    This is one softmax over the leaves, summed up the tree. Where a level has no ancestor of some leaf, the leaf's
    share is left out and the level is scaled to 1.
    """
    return {level: mass.softmax(1) for level, mass in log_masses(logits, leaves).items()}


def hxe(
    logits: dict[int, Tensor], targets: Tensor, taxonomy: Taxonomy, alpha: float = 0.5, average: Average = "level"
) -> Tensor:
    """Σ_h λ_h mean of -log p(C^h | C^up), λ_h = exp(-α place), place 0 for the coarsest level.

    C^h is the row's class at h and C^up its parent: p(C^h | C^up) = m(C^h) / m(C^up), with m of `log_masses`. A class
    without a known parent is conditioned on its level: p(C^h) = m(C^h) / Σ m over the classes of level h. So an
    unanchored class competes with its level, and not with coarser leaves: it may be below one of them. A row labelled
    at a coarse level contributes the levels it has. logits (B, C) per level, targets (B, levels).

    On a complete tree this is the authors' loss but for one factor: they use exp(-α depth), depth 1 below the root,
    and divide by its sum over all nodes. That sum would make the loss shrink as the tree grows. λ follows the level and
    not the depth, which would change whenever an intermediate class arrives.
    """
    total = torch.zeros(())
    anchored = torch.zeros(len(targets), dtype=torch.bool)
    parent = next(iter(logits.values())).new_zeros(len(targets))  # log m of each anchored row's class so far
    for place, mass in enumerate(log_masses(logits, leaves(taxonomy)).values()):
        rows = (targets[:, place] != UNKNOWN).nonzero()[:, 0]
        own = mass[rows, targets[rows, place]]
        nll = torch.where(anchored[rows], parent[rows], mass[rows].logsumexp(1)) - own
        total = total + math.exp(-alpha * place) * averaged(nll.sum(), targets[:, place], average)
        anchored, parent = anchored.index_fill(0, rows, True), parent.index_copy(0, rows, own)
    return total


def _log_sums(z: Tensor, columns: Tensor, width: int) -> Tensor:
    """(B, n) and the column of each (n,) -> (B, width) log Σ exp of what is in each column, -inf where nothing is."""
    filled, place = torch.unique(columns, return_inverse=True)
    empty = z.new_full((len(z), width), -torch.inf)
    top = empty[:, filled].scatter_reduce(1, place.expand_as(z), z.detach(), "amax")
    sums = torch.zeros_like(top).index_add(1, place, (z - top[:, place]).exp())
    return empty.index_copy(1, filled, top + sums.log())


def soft_ce(
    logits: dict[int, Tensor], targets: Tensor, taxonomy: Taxonomy, beta: float = 5.0, average: Average = "level"
) -> Tensor:
    """Σ_h mean of KL(q_y ‖ p^h), q_y(c) ∝ exp(-β d(c, y) / d_max), d the height of the lowest common ancestor.

    Classes that share no known ancestor are d_max apart: they meet at the root above all.
    """
    total = torch.zeros(())
    for place, (level, z) in enumerate(logits.items()):
        rows = targets[:, place] != UNKNOWN
        if rows.any():
            q = soft_labels(taxonomy.distances(level, targets[rows, place]), place + 1, beta)  # (n, C)
            divergence = F.kl_div(F.log_softmax(z[rows], dim=1), q, reduction="sum")
            total = total + averaged(divergence, targets[:, place], average)
    return total


def soft_labels(heights: Tensor, largest: int, beta: float) -> Tensor:
    """(n, C) heights -> distributions; the higher β, the harder the label."""
    return (-beta * heights / largest).softmax(1)
