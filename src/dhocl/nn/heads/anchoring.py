"""Where does a class belong? The images of a class against the link that a knowledge source gave.

A regression on the samples labelled at a coarser level does not depend on links. Its outputs for the mean features of a
class show which of the coarser classes it resembles. A link that they contradict is doubted.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN
from dhocl.nn.heads.ridge import Penalty, Statistics, factor, outputs

RIGHT = 0.2  # mean of the gap of a right link
WRONG = 1.0, 0.3  # mean and standard deviation of the gap of a wrong link
RARE = 0.05  # share of wrong links that is assumed at first
TAU = 0.05  # temperature of a placement
SURE = 0.9  # probability of being wrong for a doubt
FEWEST = 4  # samples of a class for a doubt


def gaps(z: Tensor, parents: Tensor) -> Tensor:
    """(n,) how far the output of the parent is below the best, in units of the best above the mean: z (n, C)."""
    best, mean = z.max(1).values, z.mean(1)
    return (best - z.gather(1, parents[:, None])[:, 0]) / (best - mean).clamp_min(1e-12)


def wrong(gap: Tensor) -> Tensor:
    """(n,) probability that a link is wrong, from gaps (n,): a mixture of right and wrong links, fitted by EM.

    Only the share of wrong links is fitted. If few links are contradicted, a contradiction counts less.
    """
    mean, deviation = WRONG
    if_right = torch.exp(-gap / RIGHT) / RIGHT
    if_wrong = torch.exp(-(((gap - mean) / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))
    share = torch.tensor(RARE)
    p = torch.zeros_like(gap)
    for _ in range(20):
        p = share * if_wrong / (share * if_wrong + (1 - share) * if_right).clamp_min(1e-30)
        share = p.mean()
    return p


def doubts(statistics: Statistics, table: TreeTable, gamma: Penalty) -> dict[int, int]:
    """Links that the images contradict: node -> its parent; gamma: ridge penalties (D,) of a level."""
    counts, sums = statistics.counts.filled, statistics.sums.filled
    found: dict[int, int] = {}
    children = ((table.parents != UNKNOWN) & (counts >= FEWEST)).nonzero()[:, 0]
    for level in table.levels[:-1]:
        linked = children[table.node_levels[table.parents[children]] == level]
        if level not in statistics.grams or table.width(level) < 3 or not len(linked):
            continue
        L = factor(statistics.grams[level], gamma(level))
        z = outputs(sums[linked] / counts[linked, None], L, sums[table.nodes(level)])
        p = wrong(gaps(z, table.columns(linked, level)))
        found |= {node: int(table.parents[node]) for node in linked[p > SURE].tolist()}
    return found


def placement(z: Tensor) -> Tensor:
    """(n, C) probabilities that classes lie below each of C others, from the outputs z for their mean features."""
    return (z / TAU).softmax(1)
