"""HALO: linear heads, analytic heads and hierarchical prototypes per level, with mixed predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.acil import RidgeSettings, analytic_heads
from dhocl.nn.augment import augment
from dhocl.nn.features import FrozenFeatures
from dhocl.nn.heads.predla import PredLA, analytic_softmax
from dhocl.nn.heads.prototypes import HprSettings, Prototypes
from dhocl.nn.learner import Batch, Learner, Needs, Setup, Stateful, TrainSettings
from dhocl.nn.losses import Average, haf, mixture_nll, multi_ce
from dhocl.nn.memory import Reservoir
from dhocl.nn.network import Network, Output


@dataclass(frozen=True)
class HaloSettings(TrainSettings, RidgeSettings, HprSettings):
    """`heads` and `hpr` switch components off for the ablation. PredLA alone: heads=both, hpr=false."""

    heads: Literal["both", "linear", "analytic"] = "both"
    hpr: bool = True
    mixing: Literal["equal", "replay"] = "equal"  # weights of the heads; replay: learned on replay, as in the paper
    prototypes_predict: bool = True  # use them as a third expert (mixing=equal)
    linear_tau: float = 2.0  # this and the next: mixing=equal
    prototype_tau: float = 2.0
    lr_alpha: float = 1e-2  # this and the next two: mixing=replay
    lr_tau: float = 0.1
    delta: float = 0.5
    batch_statistics: bool = False  # batch normalisation in training mode
    average: Average = "level"  # CE of a level: mean over its labelled rows; sample: over all rows of the batch

    positive = RidgeSettings.positive | HprSettings.positive | {"linear_tau", "prototype_tau"}


@dataclass(frozen=True)
class PrintedSettings(HaloSettings):
    """HALO as published: the paper's values, or those of the released configuration where the paper gives none."""

    lr_backbone: float = 5e-4
    lr_heads: float = 5e-4
    lr_prototypes: float = 5e-4
    lr_alpha: float = 5e-4
    batch_statistics: bool = True
    gamma: float = 1.0
    normalise: bool = False
    mixing: Literal["equal", "replay"] = "replay"
    adapter: bool = True
    printed: bool = True
    cluster: float = 1.0
    separation: float = 1.0
    lambda_: float = 0.1
    map_stride: int = 8


class HALO(Learner):
    def __init__(self, setup: Setup, settings: HaloSettings) -> None:
        if settings.hpr and settings.heads == "analytic":
            raise InputError("`settings` heads=analytic trains no features for the prototypes: add hpr=false")
        self.setup = setup
        self.settings = settings
        self.rng = Rng(setup.seed, "learner")
        self.f0 = FrozenFeatures(setup.backbone)
        self.analytic = analytic_heads(setup.backbone.dim, setup.seed, settings, setup.backbone.device)
        self.net = Network(setup, settings, maps=settings.hpr)
        self.net.f.batch_statistics = settings.batch_statistics
        self.net.f.use_map(settings.map_stride)
        self.memory = Reservoir(setup.buffer, self.rng)
        self.predla = (
            PredLA(self.net.optimizer, settings.lr_alpha, settings.lr_tau, settings.delta)
            if settings.mixing == "replay" and settings.heads == "both"
            else None
        )
        self.prototypes = (
            Prototypes(setup.backbone.map_dim, settings, self.net.optimizer, setup.seed) if settings.hpr else None
        )

    def needs(self, batch: int, samples: int) -> Needs:
        return Needs() if self.settings.heads == "analytic" else self.setup.replay_needs(batch, samples)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        b, average = len(batch.y), self.settings.average
        self.memory.follow(taxonomy)
        replay = self.memory.sample(self.setup.replay_batch)
        x = torch.cat([batch.x, replay["x"]]) if replay else batch.x
        y = torch.cat([batch.y, replay["y"]]) if replay else batch.y
        targets = self.net.targets(y, taxonomy)  # (b + r, levels)

        phi = {} if self.settings.heads == "linear" else {"phi": self.f0(batch.x)}
        if phi:
            self.analytic.grow(taxonomy)
            self.analytic.learn(self.analytic.embed(phi["phi"]), targets[:b], taxonomy.levels)
        if self.settings.heads == "analytic":
            return {}

        self.net.grow(taxonomy)
        self.net.f.train(self.settings.batch_statistics)
        output = self.net(augment(x.to(self.net.device), self.rng, self.setup.flip))
        self.net.f.eval()
        again = output.rows(b, len(x))
        terms = {"linear": multi_ce(output.rows(0, b).logits, targets[:b], average)}
        if replay:
            terms["replay"] = haf(again.logits, targets[b:], taxonomy, average)
        if self.prototypes:
            n = b if self.settings.printed else len(x)
            patches = self.prototypes.embed(output.map[:n])
            self.prototypes.grow(patches, targets[:n], taxonomy)
            losses = self.prototypes.losses(patches, targets[:n], taxonomy)
            terms["prototypes"] = losses.classification
            terms["alignment"] = self.settings.lambda_ * losses.alignment
            terms["temporal"] = self.settings.lambda_ * losses.drift
        if self.predla:
            self.predla.grow(taxonomy.levels)
        if replay and phi:
            analytic = self.analytic(self.analytic.embed(replay["phi"].to(self.net.device)))
            terms["mixture"] = mixture_nll(self.mixture(again, analytic), targets[b:], average)
        self.net.step(torch.stack(list(terms.values())).sum())

        if self.predla and "mixture" in terms:
            self.predla.match_entropies(again.logits, analytic)
        self.memory.insert(x=batch.x, y=batch.y, **phi)
        if self.prototypes:
            self.prototypes.tick()
        stats = {f"loss.{name}": term.item() for name, term in terms.items()}
        return stats | (self.predla.stats() if self.predla else {})

    def mixture(self, output: Output, analytic: dict[int, Tensor]) -> dict[int, Tensor]:
        """Mixed probabilities (B, classes) per level, from the outputs of f and the analytic heads for the same images.

        mixing=replay: weighted mean of linear and analytic head, as in the paper. mixing=equal: plain mean of these and
        the prototypes, at temperatures that calibrate each on held-out images.
        """
        if self.predla:
            return self.predla(output.logits, analytic)
        s = self.settings
        experts = [
            {level: (z / s.linear_tau).softmax(1) for level, z in output.logits.items()},
            {level: analytic_softmax(z, s.analytic_tau) for level, z in analytic.items()},
        ]
        if self.prototypes and s.prototypes_predict:
            prototypes = self.prototypes.logits(self.prototypes.embed(output.map))
            experts.append({level: (z / s.prototype_tau).softmax(1) for level, z in prototypes.items()})
        return {level: torch.stack([p[level] for p in experts]).mean(0) for level in output.logits}

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        if self.settings.heads == "linear":
            return self.net.predict(x)
        analytic = self.analytic(self.analytic.embed(self.f0.kept(x)))
        if self.settings.heads == "analytic":
            return {level: analytic_softmax(z, self.settings.analytic_tau) for level, z in analytic.items()}
        return self.mixture(self.net(x), analytic)

    def held(self) -> Tensor:
        return self.memory.nodes

    def matrices(self) -> dict[str, Tensor]:
        if not self.prototypes:
            return {}
        return {f"prototypes.{level}": self.prototypes.distances(level).cpu() for level in self.prototypes.levels}

    def components(self) -> dict[str, Stateful]:
        components: dict[str, Stateful] = {
            "rng": self.rng,
            "analytic": self.analytic,
            "net": self.net,
            "memory": self.memory,
        }
        if self.predla:
            components["predla"] = self.predla
        if self.prototypes:
            components["prototypes"] = self.prototypes
        return components | {"optimizer": self.net.optimizer}  # last: it needs the parameters that the others create
