"""Hierarchical prototypes (HPR): a bank of patch prototypes per class, aligned with the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.core.rng import Rng
from dhocl.core.settings import Settings
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.nn.heads.growing import GrowingRows
from dhocl.nn.heads.pairs import all_pairs
from dhocl.nn.heads.seeded import seeded
from dhocl.nn.optim import Optimizer

AT_ONCE = 2**24  # cosines of patches and prototypes per chunk of a prediction; limits memory use
SAMPLED = 128  # prototypes and pairs that each step samples for drift and alignment


# -- the maths: J prototypes p_cj for each class c, patches M_i of an image -------------------------------------


def class_scores(patches: Tensor, bank: Tensor) -> Tensor:
    """g_cj = max_i cos(M_i, p_cj): unit patches (B, P, k), prototypes of any length (C, J, k) -> (B, C, J)."""
    prototypes = F.normalize(bank, dim=2).flatten(0, 1)  # (C*J, k)
    cosines = patches.flatten(0, 1) @ prototypes.t()  # (B*P, C*J)
    return cosines.view(*patches.shape[:2], *bank.shape[:2]).amax(1)


def nearest_squared(patches: Tensor, bank: Tensor) -> Tensor:
    """min_ij ‖M_i - p_cj‖² of each class: (B, P, k), (C, J, k) -> (B, C)."""
    d = torch.cdist(patches.flatten(0, 1), bank.flatten(0, 1)).square()  # (B*P, C*J)
    return d.view(*patches.shape[:2], *bank.shape[:2]).amin((1, 3))


def cluster_and_separation(nearest: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared distance of an image to the nearest prototype of its class, and to the nearest of any other.

    nearest (B, C) is the distance to the nearest prototype of each class; columns (B,) the true class.
    """
    cluster = nearest.gather(1, columns[:, None]).mean()
    if nearest.shape[1] == 1:
        return cluster, torch.zeros_like(cluster)
    return cluster, nearest.scatter(1, columns[:, None], torch.inf).amin(1).mean()


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """S(P_a, P_b) = max_ij cos(p_ai, p_bj) of the two unit banks of each row: (n, J, k), (n, J, k) -> (n,)."""
    return (a @ b.transpose(1, 2)).amax((1, 2))


def temporal_drift(patches: Tensor, now: Tensor, before: Tensor, share: float) -> Tensor:
    """Mean of (M_i·p - M_i·p_before)² over the patches nearest to p: unit (N, k), (n, k), (n, k) -> (n,)."""
    top = (now @ patches.t()).topk(max(1, round(share * len(patches))), dim=1).indices  # (n, top)
    change = (now - before) @ patches.t()  # (n, N)
    return change.gather(1, top).square().mean(1)


# -- the head ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HprSettings(Settings):
    """Defaults include our fixes (docs/deviations.md); `printed` restores the paper's formulas."""

    prototypes: int = 5  # J per class
    adapter: bool = False  # two layers between the feature map and the prototypes, as in the paper
    prototype_size: int = 256  # d_p with an adapter; else the channels of the feature map
    cluster: float = 0.8
    separation: float = 0.08
    lambda_: float = 10.0  # weight of averages; the paper: 0.1 of sums
    lr_prototypes: float = 1e-2  # adapter and prototypes
    margin: float = 0.1
    top_patches: float = 0.1  # fraction of all patches of a batch
    cache_every: int = 20  # steps between snapshots of the prototypes
    logit_scale: float = 4.0
    map_stride: int = 32  # of the feature map of the patches
    printed: bool = False  # sigmoid, raw distances, sums, siblings as negatives, unscaled cosines as logits

    positive = frozenset({"prototypes", "prototype_size", "top_patches", "cache_every", "logit_scale", "map_stride"})


class Losses(NamedTuple):
    classification: Tensor
    alignment: Tensor  # mean over pairs, or the paper's sum with `printed`
    drift: Tensor  # mean over prototypes, or the sum


class Prototypes:
    """Adapter f_A and the prototype banks of every level, with their losses."""

    def __init__(self, map_dim: int, settings: HprSettings, optimizer: Optimizer, seed: int) -> None:
        self.settings = settings
        self._optimizer = optimizer
        self._rng = Rng(seed, "prototypes")
        adapter = _adapter(map_dim, settings, self._rng) if settings.adapter else nn.Identity()
        self._adapter = adapter.to(optimizer.device)
        self._scale = 1.0 if settings.printed else settings.logit_scale
        self._size = settings.prototype_size if settings.adapter else map_dim
        optimizer.add(((f"adapter.{name}", p) for name, p in self._adapter.named_parameters()), settings.lr_prototypes)
        self._banks: dict[int, GrowingRows] = {}
        self._cached: dict[int, Tensor] = {}  # level -> (prototypes at that time, k), of unit length
        self._steps = 0

    def embed(self, feature_map: Tensor) -> Tensor:
        """M = f_A(F): (B, c, h, w) -> patches (B, h*w, k)."""
        adapted: Tensor = self._adapter(feature_map.flatten(2).transpose(1, 2))
        return adapted

    def grow(self, patches: Tensor, targets: Tensor, taxonomy: Taxonomy) -> None:
        """Initialise banks of new classes from random patches of their images: (B, P, k), (B, levels)."""
        for place, (level, width) in enumerate(taxonomy.widths.items()):
            bank = self._bank(level)
            for column in range(len(bank), width):
                rows = targets[:, place] == column
                rows = rows if rows.any() else torch.ones_like(rows)  # a class without an image yet
                own = patches.detach()[rows].flatten(0, 1)
                wanted = self.settings.prototypes
                picked = self._rng.choice(len(own), wanted, replace=len(own) < wanted)
                start = own[torch.from_numpy(picked)]
                # Only directions matter. At unit length, AdamW steps are large enough to change them.
                bank.extend((start if self.settings.printed else F.normalize(start, dim=1))[None])

    def logits(self, patches: Tensor) -> dict[int, Tensor]:
        """Patches (B, P, k) -> Σ_j g_cj, scaled, per level: (B, C)."""
        directions, logits = F.normalize(patches, dim=2), {}
        for level in self.levels:
            bank = self._banks[level].parameter
            images = max(1, AT_ONCE // (patches.shape[1] * bank.shape[0] * bank.shape[1]))
            scores = [class_scores(some, bank).sum(2) for some in torch.split(directions, images)]
            logits[level] = self._scale * torch.cat(scores)
        return logits

    def losses(self, patches: Tensor, targets: Tensor, taxonomy: Taxonomy) -> Losses:
        """Losses of patches (B, P, k) with targets (B, levels)."""
        directions = F.normalize(patches, dim=2)
        return Losses(
            self._classification(patches, directions, targets),
            self._alignment(taxonomy),
            self._drift(directions.flatten(0, 1)),
        )

    def _classification(self, patches: Tensor, directions: Tensor, targets: Tensor) -> Tensor:
        """Σ_h CE + w_c cluster - w_s separation over the rows labelled at h."""
        s = self.settings
        total = patches.new_zeros(())
        for place, level in enumerate(self.levels):
            rows = targets[:, place] != UNKNOWN
            if not rows.any():
                continue
            columns, bank = targets[rows, place], self._banks[level].parameter
            scores = class_scores(directions[rows], bank)  # (b, C, J)
            nearest = nearest_squared(patches[rows], bank) if s.printed else 2 - 2 * scores.amax(2)  # (b, C)
            cluster, separation = cluster_and_separation(nearest, columns)
            ce = F.cross_entropy(self._scale * scores.sum(2), columns)
            total = total + ce + s.cluster * cluster - s.separation * separation
        return total

    def _alignment(self, taxonomy: Taxonomy) -> Tensor:
        """max(0, m - S(P_a, P_d) + S(P_a, P_-)) for pairs of a class d and its ancestor a."""
        siblings = self.settings.printed
        pairs = taxonomy.derived(f"pairs, {siblings=}", lambda: all_pairs(taxonomy, siblings))
        picked = self._choose(len(pairs.descendant))
        if not len(picked):
            return torch.zeros((), device=self._optimizer.device)
        classes = torch.cat([pairs.ancestor[picked], pairs.descendant[picked], pairs.strangers(picked, self._rng)])
        banks = torch.cat([self._banks[level].parameter for level in self.levels])  # (classes of all levels, J, k)
        ancestor, own, negative = F.normalize(banks[classes], dim=2).chunk(3)  # (pairs, J, k)
        hinge = (self.settings.margin - similarity(ancestor, own) + similarity(ancestor, negative)).clamp_min(0)
        return self._reduce(hinge, len(pairs.descendant))

    def _drift(self, patches: Tensor) -> Tensor:
        """Temporal drift of the cached prototypes: unit patches (N, k)."""
        levels = sorted(self._cached)
        if not levels:
            return patches.new_zeros(())
        before = torch.cat([self._cached[level] for level in levels])  # (prototypes, k)
        banks = [self._banks[level].parameter.flatten(0, 1)[: len(self._cached[level])] for level in levels]
        picked = self._choose(len(before))
        now = F.normalize(torch.cat(banks)[picked], dim=1)
        drift = temporal_drift(patches, now, before[picked], self.settings.top_patches)
        return self._reduce(drift, len(before))

    def _choose(self, total: int) -> Tensor:
        """(n,) ascending row indices: all, or `SAMPLED` at random."""
        if total <= SAMPLED:
            return torch.arange(total)
        return torch.from_numpy(np.sort(self._rng.choice(total, SAMPLED, replace=False, shuffle=False)))

    def _reduce(self, terms: Tensor, population: int) -> Tensor:
        """The mean, or with `printed` the paper's sum, estimated from the sample."""
        return terms.mean() * (population if self.settings.printed else 1)

    def tick(self) -> None:
        """After each step; every `cache_every` steps it takes a snapshot of the prototypes."""
        self._steps += 1
        if self._steps % self.settings.cache_every == 0:
            self._cached = {
                level: F.normalize(bank.parameter.detach(), dim=2).flatten(0, 1) for level, bank in self._banks.items()
            }

    @torch.no_grad()
    def distances(self, level: int) -> Tensor:
        """(C, C) d_ij = 1 - S(P_i, P_j)."""
        bank = self._banks[level].parameter
        return 1 - class_scores(F.normalize(bank, dim=2), bank).amax(2)

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
        device = self._optimizer.device
        self._cached = {int(level): bank.to(device, copy=True) for level, bank in state["cached"].items()}
        self._steps = state["steps"]
        self._rng.load_state_dict(state["rng"])


def _adapter(map_dim: int, settings: HprSettings, rng: Rng) -> nn.Sequential:
    """Two layers per patch. The paper's sigmoid only with `printed`: it makes all patches similar."""
    layers: list[nn.Module] = [
        nn.Linear(map_dim, settings.prototype_size),
        nn.ReLU(),
        nn.Linear(settings.prototype_size, settings.prototype_size),
    ]
    if settings.printed:
        layers.append(nn.Sigmoid())
    return seeded(nn.Sequential(*layers), rng)
