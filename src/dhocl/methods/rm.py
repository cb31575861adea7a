"""Rainbow Memory (Bang et al. 2021): keep of each class items from the surest to the least sure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dhocl.learner import Batch, PeriodicSettings, Setup
from dhocl.memory import Everything
from dhocl.methods.er import ER, ReplaySettings
from dhocl.rng import Rng
from dhocl.taxonomy import Taxonomy

CHUNK = 128  # images in one forward
GREY = 127


@dataclass(frozen=True)
class RmSettings(ReplaySettings, PeriodicSettings):
    memory_epochs: int = 1  # over the memory after each choice, for equal effort; the authors' online code takes 256


def cutout(x: Tensor, rng: Rng, share: float) -> Tensor:
    """(B, 3, H, W) with a grey square somewhere, its side a share of the image's; what falls outside is lost."""
    inside = []
    for side in x.shape[2:]:
        centre = torch.from_numpy(rng.integers(0, side, len(x)))  # (B,)
        inside.append((torch.arange(side) - centre[:, None]).abs() * 2 < share * side)  # (B, side)
    return x.masked_fill((inside[0][:, :, None] & inside[1][:, None, :])[:, None], GREY)


def solarize(x: Tensor, rng: Rng, threshold: int) -> Tensor:
    """What is brighter is inverted; from 0 on that is everything."""
    return torch.where(x < threshold, x, 255 - x)


# The paper's set, with sizes as shares of the side, and quarter turns both ways for its turn by 45 degrees.
PERTURBATIONS: tuple[Callable[[Tensor, Rng], Tensor], ...] = (
    *(partial(cutout, share=share) for share in (0.25, 0.5, 0.75, 1.0)),
    lambda x, _: x.flip(3),
    lambda x, _: x.flip(2),
    lambda x, _: x.rot90(1, (2, 3)),
    lambda x, _: x.rot90(3, (2, 3)),
    *(partial(solarize, threshold=threshold) for threshold in (0, 32, 64, 128)),
)


def variation_ratio(votes: Tensor) -> Tensor:
    """(n, k) classes voted for -> (n,) 1 - share of the most voted."""
    most = (votes[:, :, None] == votes[:, None, :]).sum(2).amax(1)  # (n,)
    return 1 - most / votes.shape[1]


def spread(u: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Up to k items at even distances in the order of their uncertainty u (n,), from the surest on; ties at random.

    Ranks are ⌊j n / k⌋. The authors' stride of ⌊n / k⌋ is the same where k divides n, but else stops short of the least
    sure: of 19 items for 10 places it would take the surest 10.
    """
    order = np.lexsort((rng.random(len(u)), u))
    return order[np.arange(k) * len(u) // k] if 0 < k < len(u) else order[:k]


def choose(u: np.ndarray, y: np.ndarray, levels: np.ndarray, capacity: int, rng: np.random.Generator) -> np.ndarray:
    """Which of n items to keep, given uncertainty, class and level of each: min(capacity, n) of them.

    Levels share the places evenly, and so do a level's classes that have items. Places left over go to the rest at
    random.
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
    """The chosen items in the first slots, and behind them all that came since: up to `every` images.

    Only chosen items are replayed. Those that wait are stored as well: by default a tenth of the stream beside the
    buffer. To compare at equal storage, give the other method a buffer that much larger, or lower `every`.
    """

    chosen = 0

    def draw(self, n: int) -> np.ndarray:
        return self._rng.choice(self.chosen, size=min(n, self.chosen), replace=False, shuffle=False)

    def keep(self, slots: np.ndarray) -> None:
        """From now on these are the chosen ones; the others are gone."""
        for column in self.columns.values():
            column[: len(slots)] = column[torch.from_numpy(slots)]
        self.size = self.chosen = len(slots)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"chosen": self.chosen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.chosen = state["chosen"]


class RM(ER):
    """Steps like replay; every `every` samples it chooses its memory anew and trains `memory_epochs` on it.

    An item's uncertainty is how much the votes for a class of its given level differ between 12 perturbed copies. That
    is 12 forwards for each stored or waiting image. With the defaults and a buffer of 1,000, RM costs 8 times ER in a
    stream of 6,000 samples, and 4 times in one of 50,000.
    Departures: choices by samples instead of at task ends; no new optimizer, rates or CutMix for the memory's epochs.
    """

    memory: Rainbow

    def __init__(self, setup: Setup, settings: RmSettings) -> None:
        super().__init__(setup, settings)
        self.settings = settings

    def make_memory(self) -> Rainbow:
        return Rainbow(0, self.rng)

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
        choice = 0 < buffer < size  # else there is none, and nothing worth knowing
        u = self.uncertainty(taxonomy).numpy() if choice else np.zeros(size)
        levels = np.array([taxonomy.labels[node].level for node in y.tolist()])
        self.memory.keep(choose(u, y.numpy(), levels, buffer, self.rng))

    def uncertainty(self, taxonomy: Taxonomy) -> Tensor:
        """(size,) of every item, chosen or waiting."""
        votes = torch.empty((self.memory.size, len(PERTURBATIONS)), dtype=torch.int64)
        for slots in np.array_split(np.arange(self.memory.size), math.ceil(self.memory.size / CHUNK)):
            items = self.memory.read(slots)
            for place, perturb in enumerate(PERTURBATIONS):
                p = self.predict(perturb(items["x"], self.rng))
                for level, rows, _ in taxonomy.by_level(items["y"]):
                    votes[torch.from_numpy(slots)[rows], place] = p[level][rows].argmax(1)
        return variation_ratio(votes)
