"""Losses that know the tree: hierarchical cross-entropy (HXE) and soft labels (Soft-CE), Bertinetto et al. 2020.

Both were made for one softmax over the leaves of a fixed tree. Here every level has its own head and the tree grows, so
they are applied level by level, over the classes known by now.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.taxonomy import UNKNOWN, Taxonomy


def sibling_log_softmax(z: Tensor, parents: Tensor) -> Tensor:
    """log p(c | parent of c): logits (B, C) -> the softmax over each family of classes with the same parent (C,)."""
    families, family = torch.unique(parents, return_inverse=True)
    top = z.amax(1, keepdim=True).detach()
    mass = z.new_zeros(len(z), len(families)).index_add(1, family, (z - top).exp())
    return z - top - mass.clamp_min(1e-30).log()[:, family]


def hxe(logits: dict[int, Tensor], targets: Tensor, taxonomy: Taxonomy, alpha: float = 0.5) -> Tensor:
    """Σ_h λ_h mean of -log p(C^h | its parent), λ_h = exp(-α place), place 0 for the coarsest level.

    The conditional is the head's softmax over the children of the true class's parent; classes whose parent is not
    known are a family of their own. λ goes by the level and not by the depth in the tree, which would jump whenever an
    intermediate class arrives. The original divides by the sum over all nodes, which would make the loss shrink as the
    tree grows; that is left out.
    """
    total = torch.zeros(())
    for place, (level, z) in enumerate(logits.items()):
        rows = targets[:, place] != UNKNOWN
        if rows.any():
            log_p = sibling_log_softmax(z[rows], taxonomy.parent_nodes(level))
            total = total + math.exp(-alpha * place) * F.nll_loss(log_p, targets[rows, place])
    return total


def chained(logits: dict[int, Tensor], parents: dict[int, Tensor], nodes: dict[int, Tensor]) -> dict[int, Tensor]:
    """Probabilities (B, C) per level of heads that were trained on conditionals: p(c) = p(c | parent) p(parent).

    parents[h] (C,) is the node of each class's parent or -1, nodes[h] (C,) its own. A family whose parent is not known
    counts in full; what each level then holds is scaled to 1.
    """
    probabilities: dict[int, Tensor] = {}
    by_node: dict[int, Tensor] = {}
    for level, z in logits.items():
        p = sibling_log_softmax(z, parents[level]).exp()
        above = [by_node.get(node) for node in parents[level].tolist()]
        p = torch.stack(
            [column if mass is None else column * mass for column, mass in zip(p.t(), above, strict=True)], 1
        )
        probabilities[level] = p / p.sum(1, keepdim=True).clamp_min(1e-12)
        by_node |= dict(zip(nodes[level].tolist(), probabilities[level].t(), strict=True))
    return probabilities


def soft_ce(logits: dict[int, Tensor], targets: Tensor, taxonomy: Taxonomy, beta: float = 5.0) -> Tensor:
    """Σ_h mean of KL(q_y ‖ p^h), q_y(c) ∝ exp(-β d(c, y) / d_max), d the height of the lowest common ancestor.

    Classes that share no known ancestor are d_max apart: they meet at the root above all.
    """
    total = torch.zeros(())
    for place, (level, z) in enumerate(logits.items()):
        rows = targets[:, place] != UNKNOWN
        if rows.any():
            q = soft_labels(taxonomy.distances(level, targets[rows, place]), place + 1, beta)  # (n, C)
            total = total + F.kl_div(F.log_softmax(z[rows], dim=1), q, reduction="batchmean")
    return total


def soft_labels(heights: Tensor, largest: int, beta: float) -> Tensor:
    """(n, C) heights -> distributions; the higher β, the harder the label."""
    return (-beta * heights / largest).softmax(1)
