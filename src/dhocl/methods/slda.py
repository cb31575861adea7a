"""Streaming linear discriminant analysis (Hayes and Kanan 2020) on frozen features.

The classes of a level have their means, and one covariance. Both follow from sums over the samples, so they equal
those of linear discriminant analysis on all samples at once, by the tree as it is when they are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dhocl.core.settings import Settings
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN
from dhocl.nn.closed_form import Affine, ClosedForm, seen_only
from dhocl.nn.heads.ridge import Statistics, factor, solve
from dhocl.nn.learner import Setup


@dataclass(frozen=True)
class SldaSettings(Settings):
    shrinkage: float = 1e-4  # ε of (1 - ε) Σ + ε I
    tau: float = 1.0  # softmax temperature

    positive = frozenset({"shrinkage", "tau"})


class SLDA(ClosedForm):
    statistics: Statistics

    def __init__(self, setup: Setup, settings: SldaSettings) -> None:
        super().__init__(setup, Statistics(setup.backbone.dim, device=setup.backbone.device))
        self.settings = settings

    def solve(self, level: int, table: TreeTable) -> Affine:
        s, (M, N) = self.settings, self.statistics.at(level, table)
        sigma = covariance(self.statistics, level, table)
        L = factor((1 - s.shrinkage) * sigma, s.shrinkage, "shrinkage")
        means = M.double() / N.clamp_min(1)[:, None]
        W = solve(L, means) / s.tau  # (C, D)
        return Affine(W.float(), seen_only(-(W * means).sum(1).float() / 2, N))


def covariance(statistics: Statistics, level: int, table: TreeTable) -> Tensor:
    """(D, D) within the classes of a level, in float64, as it is a difference of large numbers.

    It is the scatter within labels plus that of the labels' means within their class. There is one Gram matrix per
    level of the label. Where some labels have no known class here, the scatter within labels is taken in proportion to
    the samples that have one. So it is exact if all have, and never indefinite.
    """
    counts, sums = statistics.counts.filled.double(), statistics.sums.filled.double()
    means = sums / counts.clamp_min(1)[:, None]  # (nodes, D)
    scatter = sums.new_zeros(statistics.dim, statistics.dim)
    for finer, gram in statistics.grams.items():
        here = table.node_levels[: len(counts)] == finer
        scatter += statistics.share(finer, level, table) * (gram - sums[here].t() @ means[here])
    M, N = statistics.at(level, table)
    columns = table.paths[: len(counts), table.levels.index(level)]
    known = columns != UNKNOWN
    apart = means[known] - (M.double() / N.clamp_min(1)[:, None])[columns[known]]
    scatter += (counts[known, None] * apart).t() @ apart
    return scatter / N.sum().clamp_min(1)
