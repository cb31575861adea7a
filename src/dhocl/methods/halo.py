"""HALO: a linear and an analytic head per level, mixed by PredLA, on features shaped by hierarchical prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dhocl.augment import augment
from dhocl.errors import InputError
from dhocl.heads.predla import PredLA, analytic_softmax, calibrated
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
    mixing: Literal["calibrated", "replay"] = "calibrated"  # how PredLA weighs the heads; replay: the paper's rule
    linear_tau: float = 2.0  # of the calibrated mixture
    lr_alpha: float = 1e-2  # of the paper's rule, as are the next two
    lr_tau: float = 0.1
    delta: float = 0.5
    batch_statistics: bool = False  # batch normalisation in training mode

    positive = AnalyticSettings.positive | HprSettings.positive | {"linear_tau"}


@dataclass(frozen=True)
class PrintedSettings(HaloSettings):
    """HALO as the paper prints it, and as its released configuration where the paper is silent."""

    lr_backbone: float = 5e-4
    lr_heads: float = 5e-4
    lr_prototypes: float = 5e-4
    lr_alpha: float = 5e-4
    batch_statistics: bool = True
    normalise: bool = False
    mixing: Literal["calibrated", "replay"] = "replay"
    printed: bool = True
    cluster: float = 1.0
    separation: float = 1.0
    lambda_: float = 0.1
    map_stride: int = 8


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
        self.net.f.train(self.settings.batch_statistics)
        output = self.net(augment(x, self.rng, self.setup.flip))
        self.net.f.eval()
        again = output.rows(b, len(x)).logits
        terms = {"linear": multi_ce(output.rows(0, b).logits, targets[:b])}
        if replay:
            terms["replay"] = haf(again, targets[b:], taxonomy)
        if self.predla:
            self.predla.grow(taxonomy.levels)
        if replay and phi:
            analytic = self.analytic(self.analytic.embed(replay["phi"]))
            terms["mixture"] = mixture_nll(self.mixture(again, analytic), targets[b:])
        if self.prototypes:
            terms |= self.prototype_terms(self.prototypes, output.map, b, targets, taxonomy)
        self.net.step(torch.stack(list(terms.values())).sum())

        if self.predla and "mixture" in terms:
            self.predla.match_entropies(again, analytic)
        self.memory.insert(x=batch.x, y=batch.y, **phi)
        if self.prototypes:
            self.prototypes.tick()
        return {f"loss.{name}": term.item() for name, term in terms.items()} | (
            self.predla.stats() if self.predla else {}
        )

    def prototype_terms(
        self, prototypes: Prototypes, feature_map: Tensor, b: int, targets: Tensor, taxonomy: Taxonomy
    ) -> dict[str, Tensor]:
        """HPR on the stream's b images and the replayed ones; as printed, on the stream's alone."""
        n = b if self.settings.printed else len(targets)
        patches, targets = prototypes.embed(feature_map[:n]), targets[:n]
        prototypes.grow(patches, targets, taxonomy)
        losses = prototypes.losses(patches, targets, taxonomy)
        return {
            "prototypes": losses.classification,
            "alignment": self.settings.lambda_ * losses.alignment,
            "temporal": self.settings.lambda_ * losses.drift,
        }

    def mixture(self, linear: dict[int, Tensor], analytic: dict[int, Tensor]) -> dict[int, Tensor]:
        """Logits (B, classes) per level of both heads -> probabilities per level."""
        if self.predla:
            return self.predla(linear, analytic)
        taus = self.settings.linear_tau, self.settings.analytic_tau
        return {level: calibrated(z, analytic[level], *taus) for level, z in linear.items()}

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        if self.settings.heads == "linear":
            return self.net.predict(x)
        analytic = self.analytic(self.analytic.embed(self.f0.kept(x)))
        if self.settings.heads == "analytic":
            return {level: analytic_softmax(z, self.settings.analytic_tau) for level, z in analytic.items()}
        return self.mixture(self.net(x).logits, analytic)

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
        }
        if self.predla:
            parts["predla"] = self.predla
        if self.prototypes:
            parts["prototypes"] = self.prototypes
        return parts | {"optimizer": self.net.optimizer}  # last: it needs the parameters that the others make
