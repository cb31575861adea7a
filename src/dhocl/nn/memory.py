"""Replay memories.

Items are stored in contiguous tensors in main memory, one per column: the image (uint8), the node of its label, its
index in the stream, and further columns of a method. Targets are not stored: replayed labels are completed with the
current tree.

All batches have the same columns. Rows of floats may have a different width in each batch, as logits do when classes
are added. Shorter rows are padded with NaN.

>>> memory = Reservoir(9, np.random.default_rng(0))
>>> memory.insert(y=torch.tensor([0]), logits=torch.ones(1, 1))
>>> memory.insert(y=torch.tensor([1]), logits=torch.ones(1, 2))
>>> memory.read(np.arange(2))["logits"].tolist()
[[1.0, nan], [1.0, 1.0]]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.taxonomy import Taxonomy


class Memory:
    """A buffer of at most `capacity` items. Subclasses define the admission and eviction policy in `admit`."""

    training_only = True

    def __init__(self, capacity: int, rng: np.random.Generator) -> None:
        if capacity < 0:
            raise ValueError(f"capacity must be 0 or more, not {capacity}")
        self.capacity = capacity
        self.size = 0
        self.seen = 0  # items offered so far, stored or not
        self.columns: dict[str, Tensor] = {}  # name -> (capacity, ...)
        self._rng = rng
        self._merges = 0  # merges applied to the stored labels; 0 after a resume: they are applied again

    @property
    def nodes(self) -> Tensor:
        """(size,) labels of the stored items."""
        return self.columns["y"][: self.size] if self.columns else torch.empty(0, dtype=torch.long)

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """(rows of the new items to store, their slots); slots from `size` on are free."""
        raise NotImplementedError

    def insert(self, **items: Tensor) -> None:
        """Offer a batch: columns of equal length, with the same names each time. Adds the column `arrived`."""
        n = len(items["y"])
        items["arrived"] = self.seen + torch.arange(n)
        items = self._fitted({name: values.detach().cpu() for name, values in items.items()})
        rows, slots = self.admit(items)
        self.seen += n
        self.size = max(self.size, int(slots.max(initial=-1)) + 1)
        for name, values in items.items():
            self.columns[name].numpy()[slots] = values.numpy()[rows]  # faster than index_put_

    def _fitted(self, items: dict[str, Tensor]) -> dict[str, Tensor]:
        """The items, padded to the width of the columns. Widens columns where items are wider."""
        columns = self.columns or {
            name: values.new_empty((self.capacity, *values.shape[1:])) for name, values in items.items()
        }
        if items.keys() != columns.keys():
            raise ValueError(f"insert got the columns {sorted(items)}, expected {sorted(columns)}")
        lengths = {name: len(values) for name, values in items.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"insert needs columns of equal length, not {lengths}")
        pairs = {name: _aligned(name, columns[name], values) for name, values in items.items()}
        self.columns = {name: column for name, (column, _) in pairs.items()}
        return {name: values for name, (_, values) in pairs.items()}

    def follow(self, taxonomy: Taxonomy) -> None:
        """Before each batch: relabel items of merged classes."""
        if taxonomy.merges != self._merges:
            self._merges = taxonomy.merges
            self.join(taxonomy)

    def join(self, taxonomy: Taxonomy) -> None:
        """Called after a merge. Subclasses with per-class state merge it here."""
        self.nodes.copy_(taxonomy.resolve(self.nodes))

    def draw(self, n: int) -> np.ndarray:
        """Up to n distinct slots, uniformly at random."""
        return self._rng.choice(self.size, size=min(n, self.size), replace=False, shuffle=False)

    def read(self, slots: np.ndarray) -> dict[str, Tensor]:
        return {name: torch.from_numpy(column.numpy()[slots]) for name, column in self.columns.items()}

    def sample(self, n: int) -> dict[str, Tensor]:
        """A replay batch of up to n items, by column; {} if it is empty."""
        slots = self.draw(n)
        return self.read(slots) if len(slots) else {}

    def find(self, column: str, values: Tensor, y: Tensor, tolerance: float = 0.0) -> np.ndarray:
        """Slots of the newest items with these values (b, ...) and labels (b,), no slot twice; not all may be stored.

        A tolerance is for features, which differ by rounding between batches.
        """
        found: list[int] = []
        for value, node in zip(values, y, strict=True):
            slots = (self.nodes == node).nonzero()[:, 0]
            if len(slots):
                stored = self.columns[column][slots].flatten(1)
                apart = (stored.to(torch.float64) - value.flatten()).abs().amax(1) if tolerance else None
                same = (stored == value.flatten()).all(1) if apart is None else apart <= tolerance
                fitting = [slot for slot in slots[same].tolist() if slot not in found]
                found += sorted(fitting, key=lambda slot: int(self.columns["arrived"][slot]))[-1:]
        return np.array(found, dtype=np.int64)

    def remove(self, slots: np.ndarray) -> None:
        """Delete items. Those behind them move up."""
        kept = np.setdiff1d(np.arange(self.size), slots)
        for column in self.columns.values():
            column.numpy()[: len(kept)] = column.numpy()[kept]
        self.size = len(kept)

    def state_dict(self) -> dict[str, Any]:
        filled = {name: column[: self.size] for name, column in self.columns.items()}
        return {"size": self.size, "seen": self.seen, "columns": filled}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.size, self.seen = state["size"], state["seen"]
        self.columns = {}
        for name, values in state["columns"].items():
            self.columns[name] = torch.empty((self.capacity, *values.shape[1:]), dtype=values.dtype)
            self.columns[name][: self.size] = values


def _aligned(name: str, column: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Both with rows of one shape: rows of floats (n, w) are padded with NaN to the larger width."""
    if column.dim() == values.dim() == 2 and values.is_floating_point():
        width = max(column.shape[1], values.shape[1])
        column, values = (
            F.pad(t, (0, width - t.shape[1]), value=math.nan) if t.shape[1] < width else t for t in (column, values)
        )
    if (column.shape[1:], column.dtype) != (values.shape[1:], values.dtype):
        held, given = (f"{tuple(t.shape[1:])} of {t.dtype}" for t in (column, values))
        raise ValueError(f"column {name} has {held} per item, got {given}")
    return column, values


class Reservoir(Memory):
    """Vitter's Algorithm R: after n items, each is stored with probability capacity / n."""

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        n = len(items["y"])
        arrival, next_free = self.seen + np.arange(n), self.size + np.arange(n)
        drawn = (self._rng.random(n) * (arrival + 1)).astype(np.int64)
        slots = np.where(next_free < self.capacity, next_free, drawn)  # slots of removed items are filled first
        kept = np.flatnonzero(slots < self.capacity)[::-1]
        # The last of several items drawn to one slot stays, as in sequential insertion.
        taken, last = np.unique(slots[kept], return_index=True)
        return kept[last], taken

    @classmethod
    def holding(cls, seen: int, **items: Tensor) -> Reservoir:
        """One that is full: with these items, out of `seen`."""
        size = len(items["y"])
        found = cls(size, np.random.default_rng(0))
        found.insert(**items)
        found.seen = seen
        return found

    def absorb(self, other: Reservoir, nodes: Tensor) -> None:
        """Become a sample of both streams, that of `other` first; its nodes have become `nodes` (n,).

        If both have the same capacity, each item of the two streams is stored with the same probability.
        """
        if not other.size:
            return
        size, seen = min(self.capacity, self.size + other.size), self.seen + other.seen
        share = self._rng.hypergeometric(other.seen, self.seen, min(size, seen))
        theirs = other._drawn(min(max(share, size - self.size), other.size), self._rng)
        mine = self._drawn(size - len(theirs), self._rng)
        items = other.read(theirs)
        items["y"] = nodes[items["y"]]
        if len(mine):
            own = self.read(mine)
            own["arrived"] += other.seen
            items = {name: torch.cat([values, own[name]]) for name, values in items.items()}
        self.load_state_dict({"size": size, "seen": seen, "columns": items})

    def _drawn(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(self.size, size=n, replace=False)


class Everything(Memory):
    """Stores every item; doubles its capacity when full."""

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
