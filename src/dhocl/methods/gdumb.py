"""GDumb (Prabhu et al. 2020): a greedy class-balanced memory, and networks trained from the start on it alone."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.learner import Batch, PeriodicSettings, Setup
from dhocl.nn.memory import Memory


@dataclass(frozen=True)
class GdumbSettings(ReplaySettings, PeriodicSettings):
    lr_backbone: float = 1e-5
    epochs: int = 10  # per round of training, over the memory

    positive = frozenset({"epochs"})


class Greedy(Memory):
    """Balances the classes of the given labels, at whatever level.

    In a full memory, an item of a largest class is dropped. Any other item replaces a random item of the largest
    classes. So class sizes differ by one at most, except for classes of which every item is stored.
    """

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        placed: dict[int, int] = {}  # slot -> row: a later item can replace one of the same batch
        classes = np.zeros(self.capacity, dtype=np.int64)  # by slot
        classes[: self.size] = self.nodes.numpy()
        filled = self.size
        for row, name in enumerate(items["y"].tolist()):
            if filled < self.capacity:
                slot, filled = filled, filled + 1
            else:
                sizes = np.bincount(classes, minlength=name + 1)
                largest = sizes == sizes.max()
                if largest[name]:
                    continue
                slots = np.flatnonzero(largest[classes])
                slot = int(slots[self._rng.integers(len(slots))])
            classes[slot] = name
            placed[slot] = row
        return np.array(list(placed.values()), dtype=np.int64), np.array(list(placed), dtype=np.int64)


class GDumb(ER):
    """Does not learn from the stream; every `every` samples it trains a new network `epochs` on the memory.

    Every round begins with the pretrained weights, the same new heads and a new optimizer. In between, the last network
    predicts. Classes that came since have untrained rows, as has every class before the first round.
    """

    settings: GdumbSettings

    def __init__(self, setup: Setup, settings: GdumbSettings) -> None:
        self._start = copy.deepcopy(setup.backbone.state_dict())
        super().__init__(setup, settings)

    def make_memory(self) -> Memory:
        return Greedy(self.setup.buffer, self.rng)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.follow(taxonomy)
        self.memory.insert(x=batch.x, y=batch.y)
        if self.settings.due(self.setup, self.memory.seen, len(batch.y)):
            self.net.f.load_state_dict(self._start)
            self.build()
            self.follow(taxonomy)
            for _ in range(self.settings.epochs):
                self.epoch(len(batch.y) + self.setup.replay_batch, taxonomy)
        return {}
