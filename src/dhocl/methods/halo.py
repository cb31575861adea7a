"""HALO: a linear and an analytic head per level, mixed by PredLA, on features shaped by hierarchical prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dhocl.augment import augment
from dhocl.errors import InputError
from dhocl.heads.predla import Anchor, PredLA
from dhocl.heads.prototypes import HprSettings, Prototypes
from dhocl.learner import Batch, Learner, Part, Setup, TrainSettings
from dhocl.losses import haf, mixture_nll, multi_ce
from dhocl.memory import Reservoir
from dhocl.methods.acil import AnalyticSettings, analytic_heads
from dhocl.network import FrozenFeatures, Network
from dhocl.rng import Rng
from dhocl.taxonomy import Taxonomy


@dataclass(frozen=True)
class HaloSettings(TrainSettings, AnalyticSettings, HprSettings):
    """`heads` and `hpr` switch the parts for the ablation; PredLA alone is both heads without hpr."""

    heads: Literal["both", "linear", "analytic"] = "both"
    hpr: bool = True
    lr_alpha: float = 1e-2
    linear_tau: float = 1.0
    lr_tau: float = 0.1
    delta: float = 0.5
    anchor: Anchor = "analytic"  # the head whose temperature stays; in the paper neither

    positive = AnalyticSettings.positive | HprSettings.positive | {"linear_tau"}


class HALO(Learner):
    def __init__(self, setup: Setup, settings: HaloSettings) -> None:
        if settings.hpr and settings.heads == "analytic":
            raise InputError("prototypes shape trained features: --set heads=analytic goes with --set hpr=false")
        self.setup = setup
        self.settings = settings
        self.rng = Rng(setup.seed, "learner")
        self.f0 = FrozenFeatures(setup.backbone)
        self.analytic = analytic_heads(setup, settings)
        self.net = Network(setup, settings)
        self.memory = Reservoir(setup.buffer, self.rng)
        tau = (settings.linear_tau, settings.analytic_tau)
        self.predla = PredLA(
            self.net.optimizer, settings.lr_alpha, tau, settings.lr_tau, settings.delta, settings.anchor
        )
        self.prototypes = (
            Prototypes(setup.backbone.map_dim, settings, self.net.optimizer, setup.seed) if settings.hpr else None
        )

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        b = len(batch.y)
        self.memory.follow(taxonomy)
        replay = self.memory.sample(self.setup.replay_batch)
        x = torch.cat([batch.x, replay["x"]]) if replay else batch.x
        targets = taxonomy.complete(torch.cat([batch.y, replay["y"]]) if replay else batch.y)  # (b + r, levels)

        phi = {} if self.settings.heads == "linear" else {"phi": self.f0(batch.x)}
        if phi:
            self.analytic.grow(taxonomy)
            self.analytic.learn(self.analytic.embed(phi["phi"]), targets[:b], taxonomy.levels)
        if self.settings.heads == "analytic":
            return {}

        self.net.grow(taxonomy)
        output = self.net(augment(x, self.rng, self.setup.flip))
        again = output.rows(b, len(x)).logits
        terms = {"linear": multi_ce(output.rows(0, b).logits, targets[:b])}
        if replay:
            terms["replay"] = haf(again, targets[b:], taxonomy)
        if self.settings.heads == "both":
            self.predla.grow(taxonomy.levels)
        if replay and self.settings.heads == "both":
            analytic = self.analytic(self.analytic.embed(replay["phi"]))
            terms["mixture"] = mixture_nll(self.predla(again, analytic), targets[b:])
        if self.prototypes:
            patches = self.prototypes.embed(output.map)
            self.prototypes.grow(patches, targets, taxonomy)
            losses = self.prototypes.losses(patches, targets, taxonomy)
            terms["prototypes"] = losses.classification
            terms["alignment"] = self.settings.lambda_ * losses.alignment
            terms["temporal"] = self.settings.lambda_ * losses.drift
        self.net.step(torch.stack(list(terms.values())).sum())

        if "mixture" in terms:
            self.predla.match_entropies(again, analytic)
        self.memory.insert(x=batch.x, y=batch.y, **phi)
        if self.prototypes:
            self.prototypes.tick()
        return {f"loss.{name}": term.item() for name, term in terms.items()} | self.predla.stats()

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        if self.settings.heads == "linear":
            return self.net.predict(x)
        analytic = self.analytic(self.analytic.embed(self.f0.kept(x)))
        if self.settings.heads == "analytic":
            return {level: (z / self.settings.analytic_tau).softmax(1) for level, z in analytic.items()}
        return self.predla(self.net(x).logits, analytic)

    def held(self) -> Tensor:
        return self.memory.nodes

    def matrices(self) -> dict[str, Tensor]:
        if not self.prototypes:
            return {}
        return {f"prototypes.{level}": self.prototypes.distances(level) for level in self.prototypes.levels}

    def parts(self) -> dict[str, Part]:
        parts: dict[str, Part] = {
            "rng": self.rng,
            "analytic": self.analytic,
            "net": self.net,
            "memory": self.memory,
            "predla": self.predla,
        }
        if self.prototypes:
            parts["prototypes"] = self.prototypes
        return parts | {"optimizer": self.net.optimizer}  # last: it needs the parameters that the others make
