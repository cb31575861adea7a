"""Nearest class mean on frozen features (Mensink et al. 2013; a baseline of Rebuffi et al. 2017 and others).

A class is the mean of the unit-length features of all its samples. A sample of a finer label counts for the ancestors
of its class that are known when the means are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dhocl.core.settings import Settings
from dhocl.core.table import TreeTable
from dhocl.nn.closed_form import Affine, ClosedForm, seen_only
from dhocl.nn.heads.ridge import NodeSums
from dhocl.nn.learner import Setup


@dataclass(frozen=True)
class NcmSettings(Settings):
    tau: float = 0.05  # softmax temperature of squared distances

    positive = frozenset({"tau"})


class NCM(ClosedForm):
    def __init__(self, setup: Setup, settings: NcmSettings) -> None:
        super().__init__(setup, NodeSums(setup.backbone.dim, device=setup.backbone.device))
        self.settings = settings

    def solve(self, level: int, table: TreeTable) -> Affine:
        return nearest_mean(*self.statistics.at(level, table), self.settings.tau)


def nearest_mean(M: Tensor, N: Tensor, tau: float) -> Affine:
    """-|φ - μ|² / τ without |φ|², which is the same for all classes: sums M (C, D), counts N (C,)."""
    means = M / N.clamp_min(1)[:, None]
    return Affine(2 * means / tau, seen_only(-means.square().sum(1) / tau, N))
