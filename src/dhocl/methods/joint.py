"""Joint training on everything seen so far, over and over: the ceiling for a method that may keep only a little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from dhocl.learner import Batch, Setup
from dhocl.memory import Memory
from dhocl.methods.er import ER, ReplaySettings
from dhocl.taxonomy import Taxonomy


@dataclass(frozen=True)
class JointSettings(ReplaySettings):
    every: int = 500  # samples between rounds of training
    epochs: int = 2  # of a round, over all images seen so far

    positive = frozenset({"every"})


class Everything(Memory):
    """Keeps each item; room doubles when it is used up."""

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        n = len(items["y"])
        if self.size + n > self.capacity:
            self.capacity = max(self.size + n, 2 * self.capacity)
            for name, column in self.columns.items():
                grown = column.new_empty((self.capacity, *column.shape[1:]))
                grown[: self.size] = column[: self.size]
                self.columns[name] = grown
        return np.arange(n), self.size + np.arange(n)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.capacity = max(self.capacity, state["size"])
        super().load_state_dict(state)


class Joint(ER):
    """Steps like replay with an endless memory, and every so often goes over all of it, in random order."""

    def __init__(self, setup: Setup, settings: JointSettings) -> None:
        super().__init__(setup, settings)
        self.settings = settings

    def make_memory(self) -> Memory:
        return Everything(0, self.rng)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        rounds = self.memory.seen // self.settings.every - (self.memory.seen - len(batch.y)) // self.settings.every
        for _ in range(rounds * self.settings.epochs):
            self.epoch(len(batch.y) + self.setup.replay_batch, taxonomy)
        return stats

    def epoch(self, b: int, taxonomy: Taxonomy) -> None:
        order = self.rng.permutation(self.memory.size)
        for start in range(0, len(order), b):
            items = self.memory.read(order[start : start + b])
            self.net.step(self.loss([Batch(items["x"], items["y"])], taxonomy))
