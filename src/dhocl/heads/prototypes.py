"""Hierarchical prototypes (HPR): small banks of patch prototypes per class, shaped by the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.heads.banks import gather, similarities, unit
from dhocl.heads.growing import GrowingRows
from dhocl.heads.pairs import all_pairs
from dhocl.heads.patches import class_costs, class_scores, temporal_drift
from dhocl.heads.seeded import seeded
from dhocl.optim import Optimizer
from dhocl.rng import Rng
from dhocl.settings import Settings
from dhocl.taxonomy import UNKNOWN, Taxonomy

AT_ONCE = 2**24  # similarities of patches and prototypes in memory at a time, of a prediction
SAMPLED = 128  # prototypes, and pairs, that the regulariser looks at in a step; of more, a random part


def cluster_and_separation(nearest: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared distance of an image to the nearest prototype of its class, and to the nearest of any other.

    nearest (B, C) is the distance to the nearest prototype of each class; columns (B,) the true class.
    """
    cluster = nearest.gather(1, columns[:, None]).mean()
    if nearest.shape[1] == 1:
        return cluster, torch.zeros(())
    return cluster, nearest.scatter(1, columns[:, None], torch.inf).amin(1).mean()


@dataclass(frozen=True)
class HprSettings(Settings):
    """Defaults include our fixes (docs/deviations.md); `printed` restores the paper's formulas."""

    prototypes: int = 5  # J per class
    adapter: bool = False  # two layers between the feature map and the prototypes, as in the paper
    prototype_size: int = 256  # d_p, with an adapter; else prototypes are as wide as the map
    cluster: float = 0.8
    separation: float = 0.08
    lambda_: float = 10.0  # of averages; of the paper's sums, 0.1
    lr_prototypes: float = 1e-2  # adapter and prototypes
    margin: float = 0.1
    top_patches: float = 0.1  # share of all patches of a batch
    cache_every: int = 20  # steps between snapshots of the prototypes
    logit_scale: float = 4.0
    map_stride: int = 32  # of the feature map that holds the patches
    printed: bool = False  # sigmoid, raw distances, sums, negatives among siblings, plain cosines as logits

    positive = frozenset({"prototypes", "prototype_size", "top_patches", "cache_every", "logit_scale", "map_stride"})


class Losses(NamedTuple):
    classification: Tensor
    alignment: Tensor  # with the tree; an average over pairs, or the paper's sum with `printed`
    drift: Tensor  # an average over prototypes, or the sum


class Prototypes:
    """Adapter f_A and the banks of every level, with the losses that train them."""

    def __init__(self, map_dim: int, settings: HprSettings, optimizer: Optimizer, seed: int) -> None:
        self.settings = settings
        self._optimizer = optimizer
        self._rng = Rng(seed, "prototypes")
        self._adapter = _adapter(map_dim, settings, self._rng) if settings.adapter else nn.Identity()
        self._size = settings.prototype_size if settings.adapter else map_dim
        optimizer.add(((f"adapter.{name}", p) for name, p in self._adapter.named_parameters()), settings.lr_prototypes)
        self._banks: dict[int, GrowingRows] = {}
        self._cached: dict[int, Tensor] = {}  # level -> (prototypes then, k), of unit length
        self._steps = 0

    def embed(self, feature_map: Tensor) -> Tensor:
        """M = f_A(F): (B, c, h, w) -> patches (B, h*w, k)."""
        adapted: Tensor = self._adapter(feature_map.flatten(2).transpose(1, 2))
        return adapted

    def grow(self, patches: Tensor, targets: Tensor, taxonomy: Taxonomy) -> None:
        """Banks of new classes start from random patches of the class's own images: (B, P, k), (B, levels)."""
        for place, (level, width) in enumerate(taxonomy.widths.items()):
            bank = self._bank(level)
            for column in range(len(bank), width):
                rows = targets[:, place] == column
                rows = rows if rows.any() else torch.ones_like(rows)  # a class named before its first image
                own = patches.detach()[rows].flatten(0, 1)
                wanted = self.settings.prototypes
                picked = self._rng.choice(len(own), wanted, replace=len(own) < wanted)
                start = own[torch.from_numpy(picked)]
                # Only directions count, and at unit length a step of AdamW can turn them.
                bank.extend((start if self.settings.printed else F.normalize(start, dim=1))[None])

    def logits(self, patches: Tensor) -> dict[int, Tensor]:
        """Patches (B, P, k) -> Σ_j g_(c,j), scaled, per level: (B, C)."""
        directions, scale = unit(patches), 1.0 if self.settings.printed else self.settings.logit_scale
        logits = {}
        for level in self.levels:
            bank = self._banks[level].parameter
            images = max(1, AT_ONCE // (patches.shape[1] * bank.shape[0] * bank.shape[1]))
            scores = [class_scores(part, bank).sum(2) for part in torch.split(directions, images)]
            logits[level] = scale * torch.cat(scores)
        return logits

    def losses(self, patches: Tensor, targets: Tensor, taxonomy: Taxonomy) -> Losses:
        """What the patches (B, P, k) of images with these targets (B, levels) cost."""
        directions = unit(patches)
        return Losses(
            self._classification(patches, directions, targets),
            self._alignment(taxonomy),
            self._drift(directions.flatten(0, 1)),
        )

    def _classification(self, patches: Tensor, directions: Tensor, targets: Tensor) -> Tensor:
        """Σ_h CE + w_c cluster - w_s separation over the rows labelled at h."""
        s = self.settings
        total = torch.zeros(())
        for place, level in enumerate(self.levels):
            rows = (targets[:, place] != UNKNOWN).nonzero()[:, 0]
            if not len(rows):
                continue
            columns, bank = targets[rows, place], self._banks[level].parameter
            own = directions if len(rows) == len(directions) else directions.index_select(0, rows)  # no copy of all
            scores = class_scores(own, bank)  # (b, C, J)
            if s.printed:
                cluster, separation = cluster_and_separation(_nearest_squared(patches[rows], bank), columns)
                total = (
                    total + F.cross_entropy(scores.sum(2), columns) + s.cluster * cluster - s.separation * separation
                )
            else:
                total = total + class_costs(scores, columns, s.logit_scale, s.cluster, s.separation)
        return total

    def _alignment(self, taxonomy: Taxonomy) -> Tensor:
        """max(0, m - S(P_a, P_d) + S(P_a, P_-)) of every ancestor a of every class d."""
        siblings = self.settings.printed
        pairs = taxonomy.derived(f"pairs, {siblings=}", lambda: all_pairs(taxonomy, siblings))
        picked = self._choose(len(pairs.descendant))
        if not len(picked):
            return torch.zeros(())
        ancestor, descendant = pairs.ancestor[picked], pairs.descendant[picked]
        others = torch.cat([descendant, pairs.strangers(picked, self._rng)])
        banks = [self._banks[level].parameter for level in self.levels]
        own, strange = similarities(banks, ancestor.repeat(2), others).chunk(2)
        hinge = (self.settings.margin - own + strange).clamp_min(0)
        return self._reduce(hinge, len(pairs.descendant))

    def _drift(self, patches: Tensor) -> Tensor:
        """That of every prototype that the cache holds: unit patches (N, k)."""
        then = {level: self._cached[level] for level in sorted(self._cached)}
        now = [self._banks[level].parameter.flatten(0, 1)[: len(cached)] for level, cached in then.items()]
        total = sum(map(len, now))
        picked = self._choose(total)
        if not len(picked):
            return torch.zeros(())
        bank, cached = unit(gather(now, picked)), gather(list(then.values()), picked)
        return self._reduce(temporal_drift(patches, bank, cached, self.settings.top_patches), total)

    def _choose(self, total: int) -> Tensor:
        """What to look at of so many: everything, or `SAMPLED` at random."""
        if total <= SAMPLED:
            return torch.arange(total)
        return torch.from_numpy(np.sort(self._rng.choice(total, SAMPLED, replace=False, shuffle=False)))

    def _reduce(self, terms: Tensor, population: int) -> Tensor:
        """The average, or with `printed` the paper's sum, estimated from what was sampled."""
        return terms.mean() * (population if self.settings.printed else 1)

    def tick(self) -> None:
        """After each step: now and then remember the prototypes as they are."""
        self._steps += 1
        if self._steps % self.settings.cache_every == 0:
            self._cached = {
                level: F.normalize(bank.parameter.detach(), dim=2).flatten(0, 1) for level, bank in self._banks.items()
            }

    @torch.no_grad()
    def distances(self, level: int) -> Tensor:
        """(C, C) d_ij = 1 - S(P_i, P_j)."""
        bank = F.normalize(self._banks[level].parameter, dim=2)
        c, j, k = bank.shape
        cosine = bank.reshape(-1, k) @ bank.reshape(-1, k).t()
        return 1 - cosine.view(c, j, c, j).amax((1, 3))

    @property
    def levels(self) -> list[int]:
        return sorted(self._banks)

    def _bank(self, level: int) -> GrowingRows:
        if level not in self._banks:
            shape = (self.settings.prototypes, self._size)
            self._banks[level] = GrowingRows(f"prototypes.{level}", shape, self._optimizer, self.settings.lr_prototypes)
        return self._banks[level]

    def state_dict(self) -> dict[str, Any]:
        return {
            "adapter": self._adapter.state_dict(),
            "banks": {str(level): bank.state_dict() for level, bank in self._banks.items()},
            "cached": {str(level): bank for level, bank in self._cached.items()},
            "steps": self._steps,
            "rng": self._rng.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._adapter.load_state_dict(state["adapter"])
        for level, bank in state["banks"].items():
            self._bank(int(level)).load_state_dict(bank)
        self._cached = {int(level): bank.clone() for level, bank in state["cached"].items()}
        self._steps = state["steps"]
        self._rng.load_state_dict(state["rng"])


def _adapter(map_dim: int, settings: HprSettings, rng: Rng) -> nn.Sequential:
    """Two layers for each patch; the paper's sigmoid only with `printed`, as it makes all patches alike."""
    layers: list[nn.Module] = [
        nn.Linear(map_dim, settings.prototype_size),
        nn.ReLU(),
        nn.Linear(settings.prototype_size, settings.prototype_size),
    ]
    if settings.printed:
        layers.append(nn.Sigmoid())
    return seeded(nn.Sequential(*layers), rng)


def _nearest_squared(patches: Tensor, bank: Tensor) -> Tensor:
    """min over patches and prototypes of ‖M_i - p_cj‖²: (B, P, k), (C, J, k) -> (B, C)."""
    b = len(patches)
    d = torch.cdist(patches.flatten(0, 1), bank.flatten(0, 1)).square()
    return d.view(b, -1, len(bank), bank.shape[1]).amin((1, 3))
