"""Class-balancing reservoir sampling (Chrysakis and Moens 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from dhocl.memory import Memory
from dhocl.methods.er import ER
from dhocl.rng import Rng
from dhocl.taxonomy import Taxonomy


class ClassBalanced(Memory):
    """Full of the classes that have little, fair inside those that have much. A class is a label as it was given.

    A class is *full* once it was among the largest of a filled memory, and stays so. An item of a class that is not
    full replaces a random one of the largest classes; an item of a full class replaces one of its own with probability
    stored / seen, which is a reservoir inside the class.
    """

    def __init__(self, capacity: int, rng: Rng) -> None:
        super().__init__(capacity, rng)
        self._slots: dict[int, list[int]] = {}  # class -> where its items lie
        self._came: dict[int, int] = {}  # class -> items offered
        self._full: set[int] = set()

    def join(self, taxonomy: Taxonomy) -> None:
        super().join(taxonomy)
        for name in [name for name in self._came if taxonomy.accepted(name) != name]:
            accepted = taxonomy.accepted(name)
            self._came[accepted] = self._came.get(accepted, 0) + self._came.pop(name)
            self._slots.setdefault(accepted, []).extend(self._slots.pop(name, []))
            if name in self._full:
                self._full.remove(name)
                self._full.add(accepted)

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        placed: dict[int, int] = {}  # slot -> row: of two items for one slot the later stays
        filled = self.size
        for row, name in enumerate(items["y"].tolist()):
            self._came[name] = self._came.get(name, 0) + 1
            if filled < self.capacity:
                slot, filled = filled, filled + 1
                self._slots.setdefault(name, []).append(slot)
                placed[slot] = row
            elif (found := self._replaced(name)) is not None:
                placed[found] = row
            if filled == self.capacity and self._slots:
                self._full |= set(self._largest())
        return np.array(list(placed.values()), dtype=np.int64), np.array(list(placed), dtype=np.int64)

    def _replaced(self, name: int) -> int | None:
        """The slot that an item of this class takes over in a filled memory, or None if it is not kept."""
        if self.capacity == 0:
            return None
        if name not in self._full:
            slots = sorted(slot for largest in self._largest() for slot in self._slots[largest])
            slot = slots[self._rng.integers(len(slots))]
            loser = next(c for c in self._largest() if slot in self._slots[c])
            self._slots[loser].remove(slot)
            self._slots.setdefault(name, []).append(slot)
            return slot
        own = self._slots[name]
        if self._rng.random() < len(own) / self._came[name]:
            return own[self._rng.integers(len(own))]
        return None

    def _largest(self) -> list[int]:
        most = max(len(slots) for slots in self._slots.values())
        return [name for name, slots in self._slots.items() if len(slots) == most]

    def state_dict(self) -> dict[str, Any]:
        came = [[name, count] for name, count in self._came.items()]
        slots = [[name, *found] for name, found in self._slots.items()]
        return super().state_dict() | {"came": came, "slots": slots, "full": sorted(self._full)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._came = dict(state["came"])
        self._slots = {name: list(found) for name, *found in state["slots"]}
        self._full = set(state["full"])


class CBRS(ER):
    def make_memory(self) -> Memory:
        return ClassBalanced(self.setup.buffer, self.rng)
