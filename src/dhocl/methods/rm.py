"""Rainbow Memory (Bang et al. 2021): store items of each class at all degrees of uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.learner import Batch, Needs, PeriodicSettings
from dhocl.nn.memory import Everything

CHUNK = 128  # images in one forward pass
GREY = 127


@dataclass(frozen=True)
class RmSettings(ReplaySettings, PeriodicSettings):
    memory_epochs: int = 1  # over the memory after each selection; the authors' online code uses 256


def cutout(x: Tensor, rng: Rng, share: float) -> Tensor:
    """(B, 3, H, W) with a grey square at a random centre, its side a share of the image's, clipped at the border."""
    inside = []
    for side in x.shape[2:]:
        centre = torch.from_numpy(rng.integers(0, side, len(x))).to(x.device)  # (B,)
        inside.append((torch.arange(side, device=x.device) - centre[:, None]).abs() * 2 < share * side)  # (B, side)
    return x.masked_fill((inside[0][:, :, None] & inside[1][:, None, :])[:, None], GREY)


def solarize(x: Tensor, rng: Rng, threshold: int) -> Tensor:
    """Inverts pixels of at least `threshold`."""
    return torch.where(x < threshold, x, 255 - x)


# The paper's set, with sizes as shares of the side, and 90 degree rotations both ways instead of 45 degrees.
PERTURBATIONS: tuple[Callable[[Tensor, Rng], Tensor], ...] = (
    *(partial(cutout, share=share) for share in (0.25, 0.5, 0.75, 1.0)),
    lambda x, _: x.flip(3),
    lambda x, _: x.flip(2),
    lambda x, _: x.rot90(1, (2, 3)),
    lambda x, _: x.rot90(3, (2, 3)),
    *(partial(solarize, threshold=threshold) for threshold in (0, 32, 64, 128)),
)


def variation_ratio(votes: Tensor) -> Tensor:
    """(n, k) predicted classes -> (n,) 1 - share of the most frequent."""
    most = (votes[:, :, None] == votes[:, None, :]).sum(2).amax(1)  # (n,)
    return 1 - most / votes.shape[1]


def spread(u: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Up to k items at even ranks of their uncertainty u (n,), the most certain first; ties at random.

    Ranks are ⌊j n / k⌋. The authors' stride of ⌊n / k⌋ is the same if k divides n, but otherwise omits the most
    uncertain items: of 19 items for 10 slots it selects the 10 most certain.
    """
    order = np.lexsort((rng.random(len(u)), u))
    return order[np.arange(k) * len(u) // k] if 0 < k < len(u) else order[:k]


def choose(u: np.ndarray, y: np.ndarray, levels: np.ndarray, capacity: int, rng: np.random.Generator) -> np.ndarray:
    """Select min(capacity, n) of n items, given uncertainty, class and level of each.

    Slots are divided evenly among levels, and then among the classes of a level. Remaining slots are filled at random.
    """
    if len(u) <= capacity:
        return np.arange(len(u))
    kept = np.zeros(len(u), dtype=bool)
    present = np.unique(levels)
    for level in present:
        names = np.unique(y[levels == level])
        for name in names:
            own = np.flatnonzero(y == name)
            kept[own[spread(u[own], capacity // len(present) // len(names), rng)]] = True
    kept[rng.choice(np.flatnonzero(~kept), capacity - int(kept.sum()), replace=False)] = True
    return np.flatnonzero(kept)


class Rainbow(Everything):
    """The selected items in the first slots, followed by all items since the last selection: up to `every` images.

    Only selected items are replayed. The others need storage too: by default a tenth of the stream, in addition to the
    buffer. To compare at equal storage, give the other method a larger buffer, or lower `every`.
    """

    chosen = 0

    def draw(self, n: int) -> np.ndarray:
        return self._rng.choice(self.chosen, size=min(n, self.chosen), replace=False, shuffle=False)

    def keep(self, slots: np.ndarray) -> None:
        """Select these items and delete the others."""
        for column in self.columns.values():
            column[: len(slots)] = column[torch.from_numpy(slots)]
        self.size = self.chosen = len(slots)

    def remove(self, slots: np.ndarray) -> None:
        super().remove(slots)
        self.chosen -= int((slots < self.chosen).sum())

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"chosen": self.chosen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.chosen = state["chosen"]


class RM(ER):
    """Replay; every `every` samples it selects a new memory and trains `memory_epochs` on it.

    An item's uncertainty is the variation ratio of the predictions at its given level for 12 perturbed copies: 12
    forward passes for each stored image. With the defaults and a buffer of 1,000, RM costs 8 times ER in a stream of
    6,000 samples, and 4 times in one of 50,000. Deviations: selection by number of samples instead of at task ends; no
    new optimizer, learning rates or CutMix for the memory epochs.
    """

    settings: RmSettings
    memory: Rainbow

    def make_memory(self) -> Rainbow:
        return Rainbow(0, self.rng)

    def needs(self, batch: int, samples: int) -> Needs:
        stored = min(samples, self.setup.buffer + self.settings.period(self.setup))
        return super().needs(batch, samples)._replace(stored=stored)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        if self.settings.due(self.setup, self.memory.seen, len(batch.y)):
            self.refresh(taxonomy)
            for _ in range(self.settings.memory_epochs):
                self.epoch(len(batch.y) + self.setup.replay_batch, taxonomy)
        return stats

    def refresh(self, taxonomy: Taxonomy) -> None:
        size, buffer = self.memory.size, self.setup.buffer
        y = self.memory.columns["y"][:size]
        choice = 0 < buffer < size  # otherwise uncertainties are not needed
        u = self.uncertainty(taxonomy).numpy() if choice else np.zeros(size)
        levels = np.array([taxonomy.labels[node].level for node in y.tolist()])
        self.memory.keep(choose(u, y.numpy(), levels, buffer, self.rng))

    def uncertainty(self, taxonomy: Taxonomy) -> Tensor:
        """(size,) of every stored item, selected or not."""
        votes = torch.empty((self.memory.size, len(PERTURBATIONS)), dtype=torch.int64)
        for slots in np.array_split(np.arange(self.memory.size), math.ceil(self.memory.size / CHUNK)):
            items = self.memory.read(slots)
            x = items["x"].to(self.net.device)
            for place, perturb in enumerate(PERTURBATIONS):
                p = self.predict(perturb(x, self.rng))
                for level, rows, _ in taxonomy.by_level(items["y"]):
                    votes[torch.from_numpy(slots)[rows], place] = p[level][rows].argmax(1).cpu()
        return variation_ratio(votes)
