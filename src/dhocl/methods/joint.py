"""Joint training on everything seen so far, over and over: the ceiling for a method that may keep only a little."""

from __future__ import annotations

from dataclasses import dataclass

from dhocl.learner import Batch, PeriodicSettings, Setup
from dhocl.memory import Everything, Memory
from dhocl.methods.er import ER, ReplaySettings
from dhocl.taxonomy import Taxonomy


@dataclass(frozen=True)
class JointSettings(ReplaySettings, PeriodicSettings):
    epochs: int = 2  # of a round of training, over all images seen so far


class Joint(ER):
    """Steps like replay from a memory without limit; every `every` samples it trains `epochs` on all of it.

    By default that is ten rounds a stream, and 8 times the cost of ER.
    """

    def __init__(self, setup: Setup, settings: JointSettings) -> None:
        super().__init__(setup, settings)
        self.settings = settings

    def make_memory(self) -> Memory:
        return Everything(0, self.rng)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        for _ in range(self.settings.due(self.setup, self.memory.seen, len(batch.y)) * self.settings.epochs):
            self.epoch(len(batch.y) + self.setup.replay_batch, taxonomy)
        return stats
