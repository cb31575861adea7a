"""Training on the stream without a memory: lower bound for the methods."""

from __future__ import annotations

from dhocl.methods.er import ER
from dhocl.nn.memory import Memory, Reservoir


class Finetune(ER):
    def make_memory(self) -> Memory:
        return Reservoir(0, self.rng)
