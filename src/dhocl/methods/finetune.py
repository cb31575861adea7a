"""Plain training on the stream, nothing kept: the floor of what a method can do."""

from __future__ import annotations

from dhocl.memory import Memory, Reservoir
from dhocl.methods.er import ER


class Finetune(ER):
    """Replay from a memory without a place."""

    def make_memory(self) -> Memory:
        return Reservoir(0, self.rng)
