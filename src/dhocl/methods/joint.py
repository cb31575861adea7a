"""Repeated training on all data seen so far: upper bound for methods with a limited memory."""

from __future__ import annotations

from dataclasses import dataclass

from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.learner import Batch, Needs, PeriodicSettings
from dhocl.nn.memory import Everything, Memory


@dataclass(frozen=True)
class JointSettings(ReplaySettings, PeriodicSettings):
    epochs: int = 2  # per round of training, over all images seen so far


class Joint(ER):
    """Replay from an unlimited memory; every `every` samples it trains `epochs` on the whole memory.

    By default there are ten such rounds per stream, at 8 times the cost of ER.
    """

    settings: JointSettings

    def make_memory(self) -> Memory:
        return Everything(0, self.rng)

    def needs(self, batch: int, samples: int) -> Needs:
        return super().needs(batch, samples)._replace(stored=samples)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        for _ in range(self.settings.due(self.setup, self.memory.seen, len(batch.y)) * self.settings.epochs):
            self.epoch(len(batch.y) + self.setup.replay_batch, taxonomy)
        return stats
