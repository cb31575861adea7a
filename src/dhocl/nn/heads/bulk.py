"""What a part of a data set adds to AMBER: sums and a sample, which add up in any order, on any number of machines."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dhocl.core.devices import Device
from dhocl.core.table import TreeTable
from dhocl.nn.heads.ridge import Statistics


class Sample:
    """The features of those `capacity` samples that have the smallest marks. Marks are random, so it is uniform.

    The sample of a whole data set is that of its parts' samples.
    """

    def __init__(self, capacity: int, dim: int) -> None:
        self.capacity = capacity
        self.marks = torch.zeros(0, dtype=torch.long)  # (n,)
        self.phi = torch.zeros(0, dim)  # (n, D)
        self.y = torch.zeros(0, dtype=torch.long)  # (n,) nodes
        self.seen = 0

    def add(self, marks: Tensor, phi: Tensor, y: Tensor) -> None:
        self._keep(marks, phi, y)
        self.seen += len(y)

    def join(self, other: Sample) -> None:
        self._keep(other.marks, other.phi, other.y)
        self.seen += other.seen

    def state_dict(self) -> dict[str, Any]:
        return {"marks": self.marks, "phi": self.phi, "y": self.y, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def _keep(self, marks: Tensor, phi: Tensor, y: Tensor) -> None:
        pairs = (self.marks, marks), (self.phi, phi), (self.y, y)
        marks, phi, y = (torch.cat([kept, new.cpu()]) for kept, new in pairs)
        first = marks.argsort(stable=True)[: self.capacity]
        self.marks, self.phi, self.y = marks[first], phi[first], y[first]


class BulkSums:
    """Statistics of samples in double precision, so that their order does not matter, and a sample of the leaves.

    Args:
        dim: number of features D.
        sample: samples that are kept.
        device: where statistics are summed up. The sample is in main memory.
    """

    def __init__(self, dim: int, sample: int, device: Device = "cpu") -> None:
        self.statistics = Statistics(dim, torch.float64, device)
        self.sample = Sample(sample, dim)
        self.seen = 0

    def add(self, phi: Tensor, y: Tensor, marks: Tensor, table: TreeTable) -> None:
        """Add samples phi (b, D) with labels y (b,), nodes of the tree, and marks (b,), random numbers of their own."""
        self.statistics.add(phi.double(), y, table)
        leaves = table.is_leaf[y]
        self.sample.add(marks[leaves], phi[leaves], y[leaves])
        self.seen += len(y)

    def add_soft(self, phi: Tensor, targets: dict[int, Tensor]) -> None:
        """Add soft targets (b, C) per level of samples phi (b, D)."""
        for level, q in targets.items():
            some = q.sum(1) > 0
            if some.any():
                self.statistics.add_soft(phi[some].double(), q[some].double(), level)

    def join(self, other: BulkSums) -> None:
        self.statistics.join(other.statistics)
        self.sample.join(other.sample)
        self.seen += other.seen

    def on_cpu(self) -> BulkSums:
        """Itself, or a copy if it is elsewhere, to be sent to another machine."""
        if self.statistics.device == torch.device("cpu"):
            return self
        found = BulkSums(self.statistics.dim, self.sample.capacity)
        found.load_state_dict(self.state_dict())
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"statistics": self.statistics.state_dict(), "sample": self.sample.state_dict(), "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.statistics.load_state_dict(state["statistics"])
        self.sample.load_state_dict(state["sample"])
        self.seen = state["seen"]
