"""Hierarchical prototypes (HPR): small banks of patch prototypes per class, shaped by the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.heads.growing import GrowingRows
from dhocl.heads.seeded import seeded
from dhocl.optim import Optimizer
from dhocl.rng import Rng
from dhocl.settings import Settings
from dhocl.taxonomy import UNKNOWN, Taxonomy


def class_scores(patches: Tensor, bank: Tensor) -> Tensor:
    """g_(c,j) = max_i cos(M_i, p_cj): unit patches (B, P, k), unit bank (C, J, k) -> (B, C, J)."""
    b, p, k = patches.shape
    cosine = patches.reshape(b * p, k) @ bank.reshape(-1, k).t()  # (B*P, C*J)
    return cosine.view(b, p, -1).amax(1).view(b, *bank.shape[:2])


def cluster_and_separation(nearest: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared distance of an image to the nearest prototype of its class, and to the nearest of any other.

    nearest (B, C) is the distance to the nearest prototype of each class; columns (B,) the true class.
    """
    own = F.one_hot(columns, nearest.shape[1]).bool()
    cluster = nearest[own].mean()
    if nearest.shape[1] == 1:
        return cluster, torch.zeros(())
    return cluster, nearest.masked_fill(own, torch.inf).amin(1).mean()


def bank_similarity(a: Tensor, b: Tensor) -> Tensor:
    """S(P_a, P_b) = max over pairs of cosines: unit banks (n, J, k) twice -> (n,)."""
    return torch.bmm(a, b.transpose(1, 2)).amax((1, 2))


def outsiders(ancestors: Tensor, rng: Rng) -> Tensor:
    """(n,) for each class a random other whose ancestor differs; -1 where there is none.

    Sorted by ancestor, everything outside a class's block is one cyclic run, so a uniform draw is one addition.
    """
    order = ancestors.argsort(stable=True)
    _, block, sizes = torch.unique_consecutive(ancestors[order], return_inverse=True, return_counts=True)
    end = sizes.cumsum(0)[block]  # (n,) where the block of each sorted class ends
    room = len(ancestors) - sizes[block]
    offset = (torch.from_numpy(rng.random(len(ancestors))) * room).long()
    picked = order[(end + offset) % len(ancestors)]
    result = torch.empty_like(order)
    result[order] = torch.where(room > 0, picked, UNKNOWN)
    return result


def temporal_drift(patches: Tensor, bank: Tensor, cached: Tensor, share: float) -> Tensor:
    """(prototypes,) mean over each prototype's top patches of (s_t - s_cached)²: unit patches (N, k), banks (n, k)."""
    now = patches @ bank.t()  # (N, n)
    top = now.topk(max(1, round(share * len(patches))), dim=0)
    before = (patches @ cached.t()).gather(0, top.indices)
    return (top.values - before).square().mean(0)


@dataclass(frozen=True)
class HprSettings(Settings):
    """The defaults are mended (docs/deviations.md); `letter` is the paper as printed."""

    prototypes: int = 5  # J per class
    prototype_size: int = 256  # d_p
    cluster: float = 0.8
    separation: float = 0.08
    lambda_: float = 10.0  # of averages; of the paper's sums, 0.1
    lr_prototypes: float = 3e-3  # adapter and prototypes
    margin: float = 0.1
    top_patches: float = 0.1  # share of all patches of a batch
    cache_every: int = 20  # steps between snapshots of the prototypes
    logit_scale: float = 4.0
    letter: bool = False

    positive = frozenset({"prototypes", "prototype_size", "top_patches", "cache_every", "logit_scale"})


class Prototypes:
    """Adapter f_A and the banks of every level, with the losses that train them."""

    def __init__(self, map_dim: int, settings: HprSettings, optimizer: Optimizer, seed: int) -> None:
        self.settings = settings
        self._optimizer = optimizer
        self._rng = Rng(seed, "prototypes")
        self._adapter = _adapter(map_dim, settings, self._rng)
        optimizer.add(((f"adapter.{name}", p) for name, p in self._adapter.named_parameters()), settings.lr_prototypes)
        self._banks: dict[int, GrowingRows] = {}
        self._cached: dict[int, Tensor] = {}  # level -> (classes then, J, k)
        self._steps = 0

    def embed(self, feature_map: Tensor) -> Tensor:
        """M = f_A(F): (B, c, h, w) -> patches (B, h*w, k)."""
        adapted: Tensor = self._adapter(feature_map)
        return adapted.flatten(2).transpose(1, 2)

    def grow(self, patches: Tensor, targets: Tensor, taxonomy: Taxonomy) -> None:
        """Banks of new classes start from random patches of the class's own images: (B, P, k), (B, levels)."""
        for place, (level, width) in enumerate(taxonomy.widths.items()):
            bank = self._bank(level)
            for column in range(bank.width, width):
                rows = targets[:, place] == column
                rows = rows if rows.any() else torch.ones_like(rows)  # a class named before its first image
                own = patches.detach()[rows].flatten(0, 1)
                wanted = self.settings.prototypes
                picked = self._rng.choice(len(own), wanted, replace=len(own) < wanted)
                start = own[torch.from_numpy(picked)]
                # Only directions count, and at unit length a step of AdamW can turn them.
                bank.extend((start if self.settings.letter else F.normalize(start, dim=1))[None])

    def loss(self, patches: Tensor, targets: Tensor) -> Tensor:
        """Σ_h CE + 0.8 cluster - 0.08 separation over the rows labelled at h."""
        s = self.settings
        total = torch.zeros(())
        unit = F.normalize(patches, dim=2)
        for place, (_, bank) in enumerate(sorted(self._banks.items())):
            rows = targets[:, place] != UNKNOWN
            if not rows.any():
                continue
            columns = targets[rows, place]
            scores = class_scores(unit[rows], F.normalize(bank.used, dim=2))  # (b, C, J)
            if s.letter:
                logits, nearest = scores.sum(2), _nearest_squared(patches[rows], bank.used)
            else:
                logits, nearest = s.logit_scale * scores.sum(2), 2 - 2 * scores.amax(2)
            cluster, separation = cluster_and_separation(nearest, columns)
            total = total + F.cross_entropy(logits, columns) + s.cluster * cluster - s.separation * separation
        return total

    def regulariser(self, patches: Tensor, taxonomy: Taxonomy) -> tuple[Tensor, Tensor]:
        """Alignment with the tree and temporal consistency; averages, or the paper's sums with `letter`."""
        alignment, drift = self._alignment(taxonomy), self._drift(patches)
        reduce = torch.sum if self.settings.letter else torch.mean
        zero = torch.zeros(())
        return (
            reduce(alignment) if len(alignment) else zero,
            reduce(drift) if len(drift) else zero,
        )

    def _alignment(self, taxonomy: Taxonomy) -> Tensor:
        """(pairs,) max(0, m - S(P_a, P_d) + S(P_a, P_-)) for every ancestor a of every class d."""
        unit = {level: F.normalize(bank.used, dim=2) for level, bank in self._banks.items()}
        terms = []
        for fine in taxonomy.levels:
            for coarse in taxonomy.levels[: taxonomy.levels.index(fine)]:
                ancestors = taxonomy.ancestors(fine, coarse)
                anchored = (ancestors != UNKNOWN).nonzero()[:, 0]
                if len(anchored) < 2:
                    continue
                other = outsiders(ancestors[anchored], self._rng)
                paired = other != UNKNOWN
                descendant, stranger = anchored[paired], anchored[other[paired]]
                a = unit[coarse][ancestors[descendant]]
                near, far = (
                    bank_similarity(a, unit[fine][descendant]),
                    bank_similarity(a, unit[fine][stranger]),
                )
                terms.append((self.settings.margin - near + far).clamp_min(0))
        return torch.cat(terms) if terms else torch.empty(0)

    def _drift(self, patches: Tensor) -> Tensor:
        """(prototypes,) over the classes that the cache holds."""
        unit = F.normalize(patches.flatten(0, 1), dim=1)
        terms = []
        for level, cached in self._cached.items():
            bank = F.normalize(self._banks[level].used[: len(cached)], dim=2).flatten(0, 1)
            before = F.normalize(cached, dim=2).flatten(0, 1)
            terms.append(temporal_drift(unit, bank, before, self.settings.top_patches))
        return torch.cat(terms) if terms else torch.empty(0)

    def tick(self) -> None:
        """After each step: now and then remember the prototypes as they are."""
        self._steps += 1
        if self._steps % self.settings.cache_every == 0:
            self._cached = {level: bank.used.detach().clone() for level, bank in self._banks.items()}

    @torch.no_grad()
    def distances(self, level: int) -> Tensor:
        """(C, C) d_ij = 1 - S(P_i, P_j)."""
        bank = F.normalize(self._banks[level].used, dim=2)
        c, j, k = bank.shape
        cosine = bank.reshape(-1, k) @ bank.reshape(-1, k).t()
        return 1 - cosine.view(c, j, c, j).amax((1, 3))

    @property
    def levels(self) -> list[int]:
        return sorted(self._banks)

    def _bank(self, level: int) -> GrowingRows:
        if level not in self._banks:
            shape = (self.settings.prototypes, self.settings.prototype_size)
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
    """Two 1x1 convolutions; the paper's sigmoid gate only with `letter`, as it squeezes all patches together."""
    layers: list[nn.Module] = [
        nn.Conv2d(map_dim, settings.prototype_size, 1),
        nn.ReLU(),
        nn.Conv2d(settings.prototype_size, settings.prototype_size, 1),
    ]
    if settings.letter:
        layers.append(nn.Sigmoid())
    return seeded(nn.Sequential(*layers), rng)


def _nearest_squared(patches: Tensor, bank: Tensor) -> Tensor:
    """min over patches and prototypes of ‖M_i - p_cj‖²: (B, P, k), (C, J, k) -> (B, C)."""
    b = len(patches)
    d = torch.cdist(patches.flatten(0, 1), bank.flatten(0, 1)).square()
    return d.view(b, -1, len(bank), bank.shape[1]).amin((1, 3))
