"""Analytic class-incremental learning (Zhuang et al. 2022): recursive ridge regression on frozen features.

ACIL's phase-wise formula assumes that a class comes in one phase only: samples of a class met before enter R but teach
it nothing, and its weights shrink. Its own code, and the paper's analytic head, use the recursion that learns every
label; so does this row. `--set exposed_labels=false` gives the formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dhocl.heads.analytic import AnalyticHeads
from dhocl.heads.predla import analytic_softmax
from dhocl.learner import Batch, Learner, Part, Setup
from dhocl.network import FrozenFeatures
from dhocl.rng import Rng
from dhocl.settings import Settings
from dhocl.taxonomy import Taxonomy


@dataclass(frozen=True)
class AnalyticSettings(Settings):
    gamma: float = 1.0  # ridge
    expansion: int = 0  # width of the random ReLU layer; 0: none
    normalise: bool = True  # scale features to unit length
    exposed_labels: bool = True  # learn the label of a class met in an earlier batch; false: ACIL's phase-wise formula
    analytic_tau: float = 0.3  # temperature times √classes, which turns outputs into probabilities

    positive = frozenset({"gamma", "analytic_tau"})


class ACIL(Learner):
    """Keeps no image and trains no network."""

    def __init__(self, setup: Setup, settings: AnalyticSettings) -> None:
        self.settings = settings
        self.f0 = FrozenFeatures(setup.backbone)
        self.analytic = analytic_heads(setup, settings)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.analytic.grow(taxonomy)
        phi = self.analytic.embed(self.f0(batch.x))
        self.analytic.learn(phi, taxonomy.complete(batch.y), taxonomy.levels)
        return {}

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        outputs = self.analytic(self.analytic.embed(self.f0.kept(x)))
        return {level: analytic_softmax(z, self.settings.analytic_tau) for level, z in outputs.items()}

    def parts(self) -> dict[str, Part]:
        return {"analytic": self.analytic}


def analytic_heads(setup: Setup, settings: AnalyticSettings) -> AnalyticHeads:
    rng = Rng(setup.seed, "expansion")
    s = settings
    return AnalyticHeads(setup.backbone.dim, s.gamma, s.expansion, s.normalise, rng, s.exposed_labels)
