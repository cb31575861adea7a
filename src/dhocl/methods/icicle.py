"""ICICLE (Rymarczyk et al. 2023), with a reservoir: prototypical parts with similarity distillation.

Each level has banks of patch prototypes on the last feature map, as in ICICLE. Two deviations (docs/baselines.md):
- No add-on layers between feature map and prototypes: one pass is too short to train them from random weights.
- Patches and prototypes have unit length. Otherwise squared distances are in the thousands: the activation
  log((d² + 1) / (d² + ε)) is near 0 for every class, and the separation term is unbounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.heads.growing import GrowingRows
from dhocl.nn.heads.prototypes import class_scores, cluster_and_separation
from dhocl.nn.learner import Batch, PeriodicSettings, Setup, Stateful
from dhocl.nn.optim import Optimizer

AT_ONCE = 128  # images per chunk of a prediction; limits memory use


@dataclass(frozen=True)
class IcicleSettings(ReplaySettings, PeriodicSettings):
    prototypes: int = 3  # per class
    cluster: float = 0.8
    separation: float = 0.08
    distillation: float = 0.25  # weight of a mean over images; ICICLE: 0.01 of a sum
    top_patches: float = 0.03  # share of an image's patches that is distilled, per prototype
    lr_prototypes: float = 1e-2  # prototypes and the scale of the logits
    logit_scale: float = 4.0  # initial value; with 1 a softmax over 100 classes stays close to uniform

    positive = frozenset({"prototypes", "logit_scale"})


def unit_patches(feature_map: Tensor) -> Tensor:
    """(B, k, h, w) -> (B, h*w, k)"""
    return F.normalize(feature_map.flatten(2).transpose(1, 2), dim=2)


def activation(cosine: Tensor, epsilon: float = 1e-4) -> Tensor:
    """log((d² + 1) / (d² + ε)), d² = 2 - 2 cos: log(1/ε) at cosine 1."""
    d = (2 - 2 * cosine).clamp_min(0)  # rounding can give a cosine above 1
    return ((d + 1) / (d + epsilon)).log()


def similarity_drift(now: Tensor, before: Tensor, share: float) -> Tensor:
    """Mean over images of ‖S_old - S_new‖₂ where S_old is largest: activations (B, patches, prototypes) twice.

    The top patches are selected for each prototype and image. S_old is a target without gradient.
    """
    top = before.detach().topk(max(1, round(share * before.shape[1])), dim=1)
    norms: Tensor = torch.linalg.vector_norm(top.values - now.gather(1, top.indices), dim=(1, 2))
    return norms.mean()


class PrototypeHead:
    """The banks of one level."""

    def __init__(self, level: int, dim: int, settings: IcicleSettings, optimizer: Optimizer, rng: Rng) -> None:
        shape = settings.prototypes, dim
        self._settings = settings
        self._rng = rng
        self.bank = GrowingRows(f"prototypes.{level}", shape, optimizer, settings.lr_prototypes)
        device = optimizer.device
        self.met = torch.zeros(0, dtype=torch.bool, device=device)  # (C,) classes with at least one image
        self.columns = self.met.long()  # (n,) classes with an image at the last snapshot
        self.old = torch.zeros(0, *shape, device=device)  # (n, J, k) their unit prototypes at that time

    @property
    def unit(self) -> Tensor:
        """(C, J, k) prototypes at unit length."""
        return F.normalize(self.bank.parameter, dim=2)

    @torch.no_grad()
    def grow(self, patches: Tensor, columns: Tensor, width: int) -> None:
        """Initialise banks of new classes from patches (B, P, k) of their images (B,), at random if there are none."""
        j, k = self.bank.parameter.shape[1:]
        for column in range(len(self.bank), width):
            own = patches[columns == column].flatten(0, 1)  # (patches, k)
            picked = self._rng.choice(len(own), j, replace=len(own) < j) if len(own) else None
            start = torch.from_numpy(self._rng.standard_normal((j, k))) if picked is None else own[picked]
            self.bank.extend(F.normalize(start, dim=1)[None])
        self.met = F.pad(self.met, (0, width - len(self.met)))
        self.met[columns[columns != UNKNOWN]] = True

    def shape(self, cosines: Tensor, columns: Tensor) -> Tensor:
        """0.8 cluster - 0.08 separation of the rows that have a label: (B, C, J), (B,)."""
        rows = columns != UNKNOWN
        if not rows.any():
            return cosines.new_zeros(())
        cluster, separation = cluster_and_separation(2 - 2 * cosines[rows].amax(2), columns[rows])
        return self._settings.cluster * cluster - self._settings.separation * separation

    def drift(self, patches: Tensor) -> Tensor:
        """Similarity distillation against the snapshot of the prototypes: patches (B, P, k)."""
        if not len(self.columns):
            return patches.new_zeros(())
        flat = patches.flatten(0, 1)
        now, before = (
            activation(flat @ bank.flatten(0, 1).t()).view(*patches.shape[:2], -1)  # (B, P, n*J)
            for bank in (self.unit[self.columns], self.old)
        )
        return similarity_drift(now, before, self._settings.top_patches)

    def copy(self) -> None:
        """Take a snapshot of the prototypes of classes with images; the others are still random."""
        self.columns = self.met.nonzero()[:, 0]
        self.old = self.unit.detach()[self.columns]

    def state_dict(self) -> dict[str, Any]:
        return {"met": self.met, "columns": self.columns, "old": self.old, "bank": self.bank.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.met, self.columns, self.old = (
            state[name].to(self.met.device, copy=True) for name in ("met", "columns", "old")
        )
        self.bank.load_state_dict(state["bank"])


class PrototypeHeads:
    """One head per level. The logit of a class is the sum of its prototypes' activations, times a learned scale."""

    def __init__(self, dim: int, settings: IcicleSettings, optimizer: Optimizer, seed: int) -> None:
        self._dim, self._settings, self._optimizer = dim, settings, optimizer
        self._rng = Rng(seed, "prototypes")
        self.levels: dict[int, PrototypeHead] = {}  # coarsest first
        log_scale = torch.full((1,), math.log(settings.logit_scale), device=optimizer.device)
        self.log_scale = nn.Parameter(log_scale)  # no bias: softmax ignores it
        optimizer.add([("log_scale", self.log_scale)], settings.lr_prototypes)

    def grow(self, patches: Tensor, targets: Tensor, taxonomy: Taxonomy) -> None:
        self.levels = {level: self.levels.get(level) or self._make(level) for level in taxonomy.levels}
        for place, (level, head) in enumerate(self.levels.items()):
            head.grow(patches, targets[:, place], taxonomy.widths[level])

    def __call__(self, patches: Tensor) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """Unit patches (B, P, k) -> per level: logits (B, C), cosines of prototypes and nearest patches (B, C, J)."""
        cosines = {level: class_scores(patches, head.bank.parameter) for level, head in self.levels.items()}
        logits = {level: self.log_scale.exp() * activation(cosine).sum(2) for level, cosine in cosines.items()}
        return logits, cosines

    def _make(self, level: int) -> PrototypeHead:
        return PrototypeHead(level, self._dim, self._settings, self._optimizer, self._rng)

    def state_dict(self) -> dict[str, Any]:
        levels = {str(level): head.state_dict() for level, head in self.levels.items()}
        return {"levels": levels, "log_scale": self.log_scale.detach(), "rng": self._rng.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.levels = {int(level): self._make(int(level)) for level in state["levels"]}
        for level, head in self.levels.items():
            head.load_state_dict(state["levels"][str(level)])
        with torch.no_grad():
            self.log_scale.copy_(state["log_scale"])
        self._rng.load_state_dict(state["rng"])


class ICICLE(ER):
    """ER with logits from prototypes."""

    settings: IcicleSettings
    maps = True

    def __init__(self, setup: Setup, settings: IcicleSettings) -> None:
        setup.backbone.use_map(32)
        super().__init__(setup, settings)
        self.heads = PrototypeHeads(self.net.f.map_dim, settings, self.net.optimizer, setup.seed)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        if self.settings.due(self.setup, self.memory.seen, len(batch.y)):
            for head in self.heads.levels.values():
                head.copy()
        return stats

    def loss(self, batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        batches = self.augmented(batches)
        outputs = self.outputs(batches)
        paths = [self.net.targets(batch.y, taxonomy) for batch in batches]
        self.heads.grow(unit_patches(outputs[0].map), paths[0], taxonomy)
        with_logits, terms = [], []
        for output, targets in zip(outputs, paths, strict=True):
            patches = unit_patches(output.map)
            logits, cosines = self.heads(patches)
            with_logits.append(output._replace(logits=logits))
            for place, (level, head) in enumerate(self.heads.levels.items()):
                terms.append(head.shape(cosines[level], targets[:, place]))
                terms.append(self.settings.distillation * head.drift(patches))
        return self.objectives(with_logits, batches, taxonomy) + torch.stack(terms).sum()

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        maps = torch.split(self.net(x).map, AT_ONCE)
        parts = [self.heads(unit_patches(some))[0] for some in maps]
        logits = {level: torch.cat([part[level] for part in parts]) for level in parts[0]}
        return self.objective.probabilities(logits)

    def components(self) -> dict[str, Stateful]:
        return {"heads": self.heads, **super().components()}
