"""ICICLE (Rymarczyk et al. 2023), with a reservoir: prototypical parts that keep looking at what they once looked at.

A head per level, of small banks of patch prototypes. They live on the unit sphere, where ICICLE's are free: a squared
distance that can not pass 4 keeps the separation from running off and the activation off its flat end (free patches of
256 numbers lie some 30 apart, where log((d² + 1) / (d² + ε)) is 0.03 for every class).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.heads.growing import GrowingRows
from dhocl.heads.patches import class_scores
from dhocl.heads.prototypes import cluster_and_separation
from dhocl.heads.seeded import seeded
from dhocl.learner import Batch, Part, PeriodicSettings, Setup
from dhocl.methods.er import ER, ReplaySettings
from dhocl.optim import Optimizer
from dhocl.rng import Rng
from dhocl.taxonomy import UNKNOWN, Taxonomy

AT_ONCE = 128  # images whose patches are compared with all prototypes: bounds the memory


@dataclass(frozen=True)
class IcicleSettings(ReplaySettings, PeriodicSettings):
    prototypes: int = 3  # per class
    prototype_size: int = 256
    cluster: float = 0.8
    separation: float = 0.08
    distillation: float = 0.25  # of a mean over images; in ICICLE 0.01 of their sum
    top_patches: float = 0.03  # share of an image's patches that a prototype is held to
    lr_prototypes: float = 3e-3  # prototypes, add-on layers and the scale of the logits
    logit_scale: float = 4.0  # at the start: as it is, a softmax over 100 classes is hardly moved

    positive = frozenset({"prototypes", "prototype_size"})


def activation(cosine: Tensor, epsilon: float = 1e-4) -> Tensor:
    """log((d² + 1) / (d² + ε)), d² = 2 - 2 cos: rises to log(1/ε) where patch and prototype meet."""
    d = (2 - 2 * cosine).clamp_min(0)  # rounding can take a cosine past 1
    return ((d + 1) / (d + epsilon)).log()


def similarity_drift(now: Tensor, before: Tensor, share: float) -> Tensor:
    """Mean over images of ‖S_old - S_new‖₂ where S_old is largest: activations (B, patches, prototypes) twice.

    Which patches count is said for each prototype and image. What the old ones say is a target and gets no gradient.
    """
    top = before.detach().topk(max(1, round(share * before.shape[1])), dim=1)
    norms: Tensor = torch.linalg.vector_norm(top.values - now.gather(1, top.indices), dim=(1, 2))
    return norms.mean()


class PrototypeHead:
    """The banks of one level, with add-on layers of their own between them and the feature map."""

    def __init__(self, level: int, map_dim: int, settings: IcicleSettings, optimizer: Optimizer, rng: Rng) -> None:
        shape = settings.prototypes, (k := settings.prototype_size)
        self._settings = settings
        self._rng = rng
        self.addon = seeded(nn.Sequential(nn.Conv2d(map_dim, k, 1), nn.ReLU(), nn.Conv2d(k, k, 1)), rng)
        named = ((f"addon.{level}.{name}", p) for name, p in self.addon.named_parameters())
        optimizer.add(named, settings.lr_prototypes)
        self.bank = GrowingRows(f"prototypes.{level}", shape, optimizer, settings.lr_prototypes)
        self.met = torch.zeros(0, dtype=torch.bool)  # (C,) classes that have had an image
        self.columns = torch.zeros(0, dtype=torch.long)  # (n,) classes that had had one when the copy was taken
        self.old = torch.zeros(0, *shape)  # (n, J, k) their unit prototypes then

    def embed(self, feature_map: Tensor) -> Tensor:
        """(B, c, h, w) -> unit patches (B, h*w, k)."""
        return F.normalize(self.addon(feature_map).flatten(2).transpose(1, 2), dim=2)

    @property
    def unit(self) -> Tensor:
        """(C, J, k) prototypes at unit length."""
        return F.normalize(self.bank.parameter, dim=2)

    @torch.no_grad()
    def grow(self, feature_map: Tensor, columns: Tensor, width: int) -> None:
        """Banks of new classes start from patches of their own images; without any, anywhere."""
        j, k = self.bank.parameter.shape[1:]
        for column in range(len(self.bank), width):
            own = self.embed(feature_map[columns == column]).flatten(0, 1)  # (patches, k)
            picked = self._rng.choice(len(own), j, replace=len(own) < j) if len(own) else None
            start = torch.from_numpy(self._rng.standard_normal((j, k))) if picked is None else own[picked]
            self.bank.extend(F.normalize(start, dim=1)[None])
        self.met = torch.cat([self.met, torch.zeros(width - len(self.met), dtype=torch.bool)])
        self.met[columns[columns != UNKNOWN]] = True

    def shape(self, cosines: Tensor, columns: Tensor) -> Tensor:
        """0.8 cluster - 0.08 separation of the rows that have a label: (B, C, J), (B,)."""
        rows = columns != UNKNOWN
        if not rows.any():
            return torch.zeros(())
        cluster, separation = cluster_and_separation(2 - 2 * cosines[rows].amax(2), columns[rows])
        return self._settings.cluster * cluster - self._settings.separation * separation

    def drift(self, patches: Tensor) -> Tensor:
        """How differently the prototypes and their copies see these patches (B, P, k)."""
        if not len(self.columns):
            return torch.zeros(())
        flat = patches.flatten(0, 1)
        now, before = (
            activation(flat @ bank.flatten(0, 1).t()).view(*patches.shape[:2], -1)  # (B, P, n*J)
            for bank in (self.unit[self.columns], self.old)
        )
        return similarity_drift(now, before, self._settings.top_patches)

    def copy(self) -> None:
        """Remember the prototypes of classes that have had an image; those of others are still anywhere."""
        self.columns = self.met.nonzero()[:, 0]
        self.old = self.unit.detach()[self.columns]

    def state_dict(self) -> dict[str, Any]:
        tensors = {"met": self.met, "columns": self.columns, "old": self.old}
        return tensors | {"addon": self.addon.state_dict(), "bank": self.bank.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.met, self.columns, self.old = (state[name].clone() for name in ("met", "columns", "old"))
        self.addon.load_state_dict(state["addon"])
        self.bank.load_state_dict(state["bank"])


class PrototypeHeads:
    """A head per level. The logit of a class is the sum of its own prototypes' activations, times a learned scale."""

    def __init__(self, map_dim: int, settings: IcicleSettings, optimizer: Optimizer, seed: int) -> None:
        self._rng = Rng(seed, "prototypes")
        self._make = partial(PrototypeHead, map_dim=map_dim, settings=settings, optimizer=optimizer, rng=self._rng)
        self.levels: dict[int, PrototypeHead] = {}  # coarsest first
        self.log_scale = nn.Parameter(
            torch.full((1,), math.log(settings.logit_scale))
        )  # no bias beside it: a softmax does not see one
        optimizer.add([("log_scale", self.log_scale)], settings.lr_prototypes)

    def grow(self, feature_map: Tensor, targets: Tensor, taxonomy: Taxonomy) -> None:
        self.levels = {level: self.levels.get(level) or self._make(level) for level in taxonomy.levels}
        for place, (level, head) in enumerate(self.levels.items()):
            head.grow(feature_map, targets[:, place], taxonomy.widths[level])

    def __call__(self, feature_map: Tensor) -> tuple[dict[int, Tensor], dict[int, Tensor], dict[int, Tensor]]:
        """Per level: logits (B, C), the cosine of each prototype and its nearest patch (B, C, J), patches (B, P, k)."""
        patches = {level: head.embed(feature_map) for level, head in self.levels.items()}
        cosines = {level: class_scores(patches[level], head.bank.parameter) for level, head in self.levels.items()}
        logits = {level: self.log_scale.exp() * activation(cosine).sum(2) for level, cosine in cosines.items()}
        return logits, cosines, patches

    def state_dict(self) -> dict[str, Any]:
        levels = {str(level): head.state_dict() for level, head in self.levels.items()}
        return {"levels": levels, "log_scale": self.log_scale.detach(), "rng": self._rng.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.levels = {int(level): self._make(int(level)) for level in state["levels"]}
        for level, head in self.levels.items():
            head.load_state_dict(state["levels"][str(level)])
        with torch.no_grad():
            self.log_scale.copy_(state["log_scale"])
        self._rng.load_state_dict(state["rng"])  # last: making the heads has drawn from it


class ICICLE(ER):
    """ER whose logits are those of the prototypes."""

    def __init__(self, setup: Setup, settings: IcicleSettings) -> None:
        super().__init__(setup, settings)
        self.settings = settings
        self.heads = PrototypeHeads(self.net.f.map_dim, settings, self.net.optimizer, setup.seed)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        if self.settings.due(self.setup, self.memory.seen, len(batch.y)):
            for head in self.heads.levels.values():
                head.copy()
        return stats

    def loss(self, batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        outputs = self.outputs(batches)
        paths = [taxonomy.complete(batch.y).repeat(self.objective.views, 1) for batch in batches]
        self.heads.grow(outputs[0].map, paths[0], taxonomy)
        answers, terms = [], []
        for output, targets in zip(outputs, paths, strict=True):
            logits, cosines, patches = self.heads(output.map)
            answers.append(output._replace(logits=logits))
            for place, (level, head) in enumerate(self.heads.levels.items()):
                terms.append(head.shape(cosines[level], targets[:, place]))
                terms.append(self.settings.distillation * head.drift(patches[level]))
        return self.objectives(answers, batches, taxonomy) + torch.stack(terms).sum()

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        maps = torch.split(self.net(x).map, AT_ONCE)
        parts = [self.heads(some)[0] for some in maps]
        logits = {level: torch.cat([part[level] for part in parts]) for level in parts[0]}
        return self.objective.probabilities(logits)

    def parts(self) -> dict[str, Part]:
        parts = super().parts()
        optimizer = parts.pop("optimizer")
        return parts | {"heads": self.heads, "optimizer": optimizer}
