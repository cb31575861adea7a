"""Training on the stream without a memory: lower bound for the methods."""

from __future__ import annotations

from dataclasses import dataclass

from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.learner import Needs
from dhocl.nn.memory import Memory, Reservoir


@dataclass(frozen=True)
class FinetuneSettings(ReplaySettings):
    lr_backbone: float = 1e-5


class Finetune(ER):
    def needs(self, batch: int, samples: int) -> Needs:
        return Needs(trained=self.objective.copies * batch)

    def make_memory(self) -> Memory:
        return Reservoir(0, self.rng)
