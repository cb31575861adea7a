"""Training on all data seen so far, all the time: upper bound for methods with a limited memory."""

from __future__ import annotations

from dataclasses import dataclass

from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.learner import Batch, Needs
from dhocl.nn.memory import Everything, Memory


@dataclass(frozen=True)
class JointSettings(ReplaySettings):
    steps: int = 8  # further ones after each batch


class Joint(ER):
    """Replay from an unlimited memory, and after each batch `steps` more on images drawn from all of it.

    They are spread evenly: after rare rounds of training, accuracy would depend on how long ago the last one was.
    """

    settings: JointSettings

    def make_memory(self) -> Memory:
        return Everything(0, self.rng)

    def needs(self, batch: int, samples: int) -> Needs:
        return super().needs(batch, samples)._replace(stored=samples)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        for _ in range(self.settings.steps):
            items = self.memory.sample(len(batch.y) + self.setup.replay_batch)
            self.net.step(self.loss([Batch(items["x"], items["y"])], taxonomy))
        return stats
