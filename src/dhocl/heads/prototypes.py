"""Hierarchical prototypes (HPR): small banks of patch prototypes per class, shaped by the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.heads.growing import GrowingRows
from dhocl.heads.seeded import seeded
from dhocl.optim import Optimizer
from dhocl.rng import Rng
from dhocl.settings import Settings
from dhocl.taxonomy import UNKNOWN, Taxonomy

K = TypeVar("K")
SAMPLED = 256  # prototypes, and pairs, that the regulariser looks at in a step; of more, a random part


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


class Pairs(NamedTuple):
    """Classes of a level with a known ancestor at a coarser one, and what is needed to draw strangers for them.

    Sorted by ancestor, everything outside a class's block is one cyclic run, so a uniform draw is one addition. Classes
    that have no stranger, since all have the same ancestor, are left out.
    """

    descendant: Tensor  # (n,) columns, sorted by ancestor
    ancestor: Tensor  # (n,) columns
    end: Tensor  # (n,) where the block of each ends
    room: Tensor  # (n,) how many are outside of it

    @classmethod
    def of(cls, ancestors: Tensor) -> Pairs:
        """ancestors (C,) with -1 for unknown"""
        anchored = (ancestors != UNKNOWN).nonzero()[:, 0]
        descendant = anchored[ancestors[anchored].argsort(stable=True)]
        ancestor = ancestors[descendant]
        _, block, sizes = torch.unique_consecutive(ancestor, return_inverse=True, return_counts=True)
        if len(sizes) < 2:
            nothing = descendant[:0]
            return cls(nothing, nothing, nothing, nothing)
        return cls(descendant, ancestor, sizes.cumsum(0)[block], len(descendant) - sizes[block])

    def strangers(self, picked: Tensor | slice, rng: Rng) -> Tensor:
        """(m,) for each of the picked ones a random class with another ancestor."""
        room = self.room[picked]
        offset = (torch.from_numpy(rng.random(len(room))) * room).long()
        return self.descendant[(self.end[picked] + offset) % len(self.descendant)]


def all_pairs(taxonomy: Taxonomy) -> dict[tuple[int, int], Pairs]:
    """By finer and coarser level."""
    levels = taxonomy.levels
    places = [(fine, coarse) for fine in levels for coarse in levels if coarse < fine]
    return {place: Pairs.of(taxonomy.ancestors(*place)) for place in places}


def temporal_drift(patches: Tensor, bank: Tensor, cached: Tensor, share: float) -> Tensor:
    """(prototypes,) mean over each prototype's top patches of (s_t - s_cached)²: unit patches (N, k), banks (n, k)."""
    with torch.no_grad():
        top = (bank @ patches.t()).topk(max(1, round(share * len(patches))), dim=1, sorted=False).indices  # (n, K)
    change = (bank - cached) @ patches.t()  # (n, N)
    return change.gather(1, top).square().mean(1)


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


class Losses(NamedTuple):
    classification: Tensor
    alignment: Tensor  # with the tree; an average over pairs, or the paper's sum with `letter`
    drift: Tensor  # an average over prototypes, or the sum


class Prototypes:
    """Adapter f_A and the banks of every level, with the losses that train them."""

    def __init__(self, map_dim: int, settings: HprSettings, optimizer: Optimizer, seed: int) -> None:
        self.settings = settings
        self._optimizer = optimizer
        self._rng = Rng(seed, "prototypes")
        self._adapter = _adapter(map_dim, settings, self._rng)
        optimizer.add(((f"adapter.{name}", p) for name, p in self._adapter.named_parameters()), settings.lr_prototypes)
        self._banks: dict[int, GrowingRows] = {}
        self._cached: dict[int, Tensor] = {}  # level -> (prototypes then, k), of unit length
        self._steps = 0

    def embed(self, feature_map: Tensor) -> Tensor:
        """M = f_A(F): (B, c, h, w) -> patches (B, h*w, k)."""
        adapted: Tensor = self._adapter(feature_map)
        return adapted.flatten(2).transpose(1, 2)

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
                bank.extend((start if self.settings.letter else F.normalize(start, dim=1))[None])

    def losses(self, patches: Tensor, targets: Tensor, taxonomy: Taxonomy) -> Losses:
        """What the patches (B, P, k) of images with these targets (B, levels) cost."""
        unit = F.normalize(patches, dim=2)
        banks = {level: F.normalize(bank.parameter, dim=2) for level, bank in sorted(self._banks.items())}
        return Losses(
            self._classification(patches, unit, banks, targets),
            self._alignment(banks, taxonomy),
            self._drift(unit.flatten(0, 1), banks),
        )

    def _classification(self, patches: Tensor, unit: Tensor, banks: dict[int, Tensor], targets: Tensor) -> Tensor:
        """Σ_h CE + 0.8 cluster - 0.08 separation over the rows labelled at h."""
        s = self.settings
        total = torch.zeros(())
        for place, (level, bank) in enumerate(banks.items()):
            rows = (targets[:, place] != UNKNOWN).nonzero()[:, 0]
            if not len(rows):
                continue
            columns = targets[rows, place]
            scores = class_scores(unit[rows], bank)  # (b, C, J)
            if s.letter:
                logits, nearest = scores.sum(2), _nearest_squared(patches[rows], self._banks[level].parameter)
            else:
                logits, nearest = s.logit_scale * scores.sum(2), 2 - 2 * scores.amax(2)
            cluster, separation = cluster_and_separation(nearest, columns)
            total = total + F.cross_entropy(logits, columns) + s.cluster * cluster - s.separation * separation
        return total

    def _alignment(self, banks: dict[int, Tensor], taxonomy: Taxonomy) -> Tensor:
        """max(0, m - S(P_a, P_d) + S(P_a, P_-)) of every ancestor a of every class d."""
        groups = taxonomy.derived("pairs", lambda: all_pairs(taxonomy))
        sizes = {place: len(group.descendant) for place, group in groups.items()}
        terms = []
        for (fine, coarse), picked in self._choose(sizes).items():
            group = groups[fine, coarse]
            descendant, stranger = group.descendant[picked], group.strangers(picked, self._rng)
            a = banks[coarse][group.ancestor[picked]]
            near, far = bank_similarity(a, banks[fine][descendant]), bank_similarity(a, banks[fine][stranger])
            terms.append((self.settings.margin - near + far).clamp_min(0))
        return self._reduce(terms, sum(sizes.values()))

    def _drift(self, patches: Tensor, banks: dict[int, Tensor]) -> Tensor:
        """That of every prototype that the cache holds: unit patches (N, k)."""
        sizes = {level: len(cached) for level, cached in self._cached.items()}
        terms = []
        for level, picked in self._choose(sizes).items():
            bank = banks[level].flatten(0, 1)[: sizes[level]][picked]
            terms.append(temporal_drift(patches, bank, self._cached[level][picked], self.settings.top_patches))
        return self._reduce(terms, sum(sizes.values()))

    def _choose(self, sizes: dict[K, int]) -> dict[K, Tensor | slice]:
        """What to look at in groups of these sizes: everything, or `SAMPLED` of all at random."""
        there = {name: size for name, size in sizes.items() if size}
        total = sum(there.values())
        if total <= SAMPLED:
            return dict.fromkeys(there, slice(None))
        drawn = np.sort(self._rng.choice(total, SAMPLED, replace=False, shuffle=False))
        chosen: dict[K, Tensor | slice] = {}
        start = 0
        for name, size in there.items():
            picked = drawn[np.searchsorted(drawn, start) : np.searchsorted(drawn, start + size)] - start
            start += size
            if len(picked):
                chosen[name] = torch.from_numpy(picked)
        return chosen

    def _reduce(self, terms: list[Tensor], population: int) -> Tensor:
        """The average, or with `letter` the paper's sum, estimated from what was looked at."""
        if not terms:
            return torch.zeros(())
        return torch.cat(terms).mean() * (population if self.settings.letter else 1)

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
