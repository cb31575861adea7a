"""Analytic class-incremental learning (Zhuang et al. 2022): recursive ridge regression on frozen features.

ACIL's phase-wise formula assumes that a class occurs in one phase only. Labels of classes from earlier phases are
ignored, and the weights of these classes shrink. The authors' code and HALO's analytic head learn every label, and so
does this implementation. `--set exposed_labels=false` gives the formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.devices import Device
from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.core.settings import Settings
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.nn.features import FrozenFeatures, WeightedStages
from dhocl.nn.heads.analytic import AnalyticHeads
from dhocl.nn.heads.balance import Balance
from dhocl.nn.heads.predla import analytic_softmax
from dhocl.nn.learner import Batch, Learner, Setup, Stateful
from dhocl.nn.ledger import TargetLedger


@dataclass(frozen=True)
class RidgeSettings(Settings):
    """Of analytic heads, also those of HALO."""

    gamma: float = 0.3  # ridge
    expansion: int = 0  # width of the random ReLU layer; 0: none
    normalise: bool = True  # scale features to unit length
    exposed_labels: bool = True  # learn labels of classes from earlier batches; false: ACIL's phase-wise formula
    analytic_tau: float = 0.3  # softmax temperature times √classes

    positive = frozenset({"gamma", "analytic_tau"})


@dataclass(frozen=True)
class AnalyticSettings(RidgeSettings):
    stages: float = 0.0  # weight of the features of earlier stages, each of unit length; 0: the final features alone
    balance: float = 0.0  # exponent of the correction for frequent classes; 0: none


class ACIL(Learner):
    """Stores no images and trains no network."""

    def __init__(self, setup: Setup, settings: AnalyticSettings) -> None:
        self.settings = settings
        self.f0 = WeightedStages(setup.backbone, settings.stages) if settings.stages else FrozenFeatures(setup.backbone)
        self.device = setup.backbone.device
        self.analytic = analytic_heads(self.f0.dim, setup.seed, settings, self.device)
        self.balance = Balance(settings.balance, setup.backbone.device) if settings.balance else None
        self.ledger = TargetLedger()

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.analytic.grow(taxonomy)
        phi = self.analytic.embed(self.f0(batch.x))
        targets = taxonomy.complete(batch.y)
        here = targets.to(self.device)
        self.analytic.learn(phi, here, taxonomy.levels)
        if self.balance:
            self.balance.learn(here, taxonomy)
        hot = {
            level: F.one_hot(targets[:, place] + 1, taxonomy.widths[level] + 1)[:, 1:].float()
            for place, level in enumerate(taxonomy.levels)
        }
        self.ledger.add(batch.keys, batch.y, hot)
        return {}

    def forget(self, batch: Batch, taxonomy: Taxonomy) -> None:
        """Exact, with the targets by the tree as it was when the samples were learned."""
        if not self.settings.exposed_labels:
            raise InputError("with exposed_labels=false samples can not be forgotten: their order counts")
        places = [place for place in self.ledger.find(batch.keys, batch.y) if place is not None]
        if len(places) < len(batch.y):
            raise InputError("a sample is too old to be forgotten: its targets are not known any more")
        targets = torch.full((len(places), len(taxonomy.levels)), UNKNOWN)
        for row, place in enumerate(places):
            for level, (columns, _) in self.ledger.targets(place).items():
                targets[row, taxonomy.levels.index(level)] = columns[0]
        targets = targets.to(self.device)
        self.analytic.grow(taxonomy)
        self.analytic.forget(self.analytic.embed(self.f0(batch.x)), targets, taxonomy.levels)
        if self.balance:
            self.balance.learn(targets, taxonomy, sign=-1)
        self.ledger.remove(places)

    def frozen_features(self, x: Tensor) -> Tensor:
        return self.f0.kept(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        outputs = self.analytic(self.analytic.embed(self.f0.kept(x)))
        outputs = self.balance(outputs) if self.balance else outputs
        return {level: analytic_softmax(z, self.settings.analytic_tau) for level, z in outputs.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict({"ledger": self.ledger.state_dict()} | state)  # earlier versions wrote none

    def components(self) -> dict[str, Stateful]:
        balance: dict[str, Stateful] = {"balance": self.balance} if self.balance else {}
        return {"analytic": self.analytic, "ledger": self.ledger, **balance}


def analytic_heads(dim: int, seed: int, settings: RidgeSettings, device: Device = "cpu") -> AnalyticHeads:
    rng = Rng(seed, "expansion")
    s = settings
    return AnalyticHeads(dim, s.gamma, s.expansion, s.normalise, rng, s.exposed_labels, device)
