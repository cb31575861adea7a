"""What a learner keeps of the stream.

Items live in contiguous tensors, one per column: the image as it arrived (uint8), the node it was labelled with, its
number in the stream, and whatever a method needs beside them. Targets are never stored: a replayed item is completed
along today's tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dhocl.taxonomy import Taxonomy


class Memory:
    """A buffer of at most `capacity` items. How it admits and evicts is `admit`, to be defined by a policy."""

    def __init__(self, capacity: int, rng: np.random.Generator) -> None:
        if capacity < 0:
            raise ValueError(f"a buffer can not hold {capacity} items")
        self.capacity = capacity
        self.size = 0
        self.seen = 0  # items offered so far, kept or not
        self.columns: dict[str, Tensor] = {}  # name -> (capacity, ...)
        self._rng = rng
        self._merges = 0  # that the stored labels know of; after a resume they are looked at once more

    @property
    def nodes(self) -> Tensor:
        """(size,) what the stored items were labelled with."""
        return self.columns["y"][: self.size] if self.columns else torch.empty(0, dtype=torch.long)

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """Which of the arriving items are kept, and in which slots; slots from `size` on are new."""
        raise NotImplementedError

    def insert(self, **items: Tensor) -> None:
        """Offer a batch: columns of equal length, the same names each time. When each item `arrived` is noted."""
        n = len(items["y"])
        items["arrived"] = self.seen + torch.arange(n)
        rows, slots = self.admit(items)
        self.seen += n
        self.size = max(self.size, int(slots.max(initial=-1)) + 1)
        for name, values in items.items():
            if name not in self.columns:
                self.columns[name] = torch.empty((self.capacity, *values.shape[1:]), dtype=values.dtype)
            self.columns[name].numpy()[slots] = values.detach().numpy()[rows]  # whole rows, faster than index_put_

    def follow(self, taxonomy: Taxonomy) -> None:
        """Before each batch: what is stored of a merged class is its accepted class's from now on."""
        if taxonomy.merges != self._merges:
            self._merges = taxonomy.merges
            self.join(taxonomy)

    def join(self, taxonomy: Taxonomy) -> None:
        """Classes were merged; whatever is kept by class is to be joined."""
        self.nodes.copy_(taxonomy.resolve(self.nodes))

    def draw(self, n: int) -> np.ndarray:
        """Distinct slots, uniform; all of them when there are fewer than n."""
        return self._rng.choice(self.size, size=min(n, self.size), replace=False, shuffle=False)

    def read(self, slots: np.ndarray) -> dict[str, Tensor]:
        return {name: torch.from_numpy(column.numpy()[slots]) for name, column in self.columns.items()}

    def sample(self, n: int) -> dict[str, Tensor]:
        """A replay batch by column name; no column at all when there is nothing to replay."""
        slots = self.draw(n)
        return self.read(slots) if len(slots) else {}

    def state_dict(self) -> dict[str, Any]:
        filled = {name: column[: self.size] for name, column in self.columns.items()}
        return {"size": self.size, "seen": self.seen, "columns": filled}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.size, self.seen = state["size"], state["seen"]
        self.columns = {}
        for name, values in state["columns"].items():
            self.columns[name] = torch.empty((self.capacity, *values.shape[1:]), dtype=values.dtype)
            self.columns[name][: self.size] = values


class Reservoir(Memory):
    """Vitter's Algorithm R: after n items each of them is kept with probability capacity / n."""

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        n = len(items["y"])
        arrival = self.seen + np.arange(n)
        slots = np.where(arrival < self.capacity, arrival, (self._rng.random(n) * (arrival + 1)).astype(np.int64))
        kept = np.flatnonzero(slots < self.capacity)[::-1]
        # Of several items drawn to one slot the last stays, as if they had come one by one.
        taken, last = np.unique(slots[kept], return_index=True)
        return kept[last], taken


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
