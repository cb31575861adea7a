"""Class-balancing reservoir sampling (Chrysakis and Moens 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER
from dhocl.nn.memory import Memory


class ClassBalanced(Memory):
    """Balances the classes of the given labels, at whatever level, and keeps a uniform sample of each large class.

    A class becomes *full* when it is among the largest of a full memory, and stays full. An item of a class that is not
    full replaces a random item of the largest classes. An item of a full class replaces an item of its own class with
    probability stored / seen, as in a reservoir.
    """

    def __init__(self, capacity: int, rng: Rng) -> None:
        super().__init__(capacity, rng)
        self._slots: dict[int, list[int]] = {}  # class -> slots of its items
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

    def remove(self, slots: np.ndarray) -> None:
        gone, before = set(slots.tolist()), np.cumsum(np.isin(np.arange(self.size), slots))
        for name, own in self._slots.items():
            self._slots[name] = [slot - int(before[slot]) for slot in own if slot not in gone]
        self._full = {name for name in self._full if self._slots[name]}  # an empty one could not become larger
        super().remove(slots)

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        placed: dict[int, int] = {}  # slot -> row: the last item drawn to a slot stays
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
        """Slot of the item to replace in a full memory; None to drop the new item."""
        if self.capacity == 0:
            return None
        if name not in self._full:
            slots = sorted(slot for largest in self._largest() for slot in self._slots[largest])
            slot = slots[self._rng.integers(len(slots))]
            evicted = next(c for c in self._largest() if slot in self._slots[c])
            self._slots[evicted].remove(slot)
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
