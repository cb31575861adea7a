"""Learners whose outputs are linear in frozen features, with weights that follow from sums over the samples."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.devices import Device
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import Taxonomy
from dhocl.nn.features import FrozenFeatures
from dhocl.nn.heads.ridge import NodeSums
from dhocl.nn.learner import Batch, Learner, Setup, Stateful


class Affine(NamedTuple):
    """The logits of a level: φ Wᵀ + b."""

    W: Tensor  # (C, D)
    b: Tensor  # (C,)


def seen_only(b: Tensor, N: Tensor) -> Tensor:
    """(C,) biases, -∞ for classes without a sample, unless no class has one: b (C,), N (C,) counts."""
    return b.masked_fill(N == 0, -torch.inf) if N.any() else b


class Tree:
    """The tree at the last batch."""

    training_only = True

    def __init__(self, device: Device = "cpu") -> None:
        self._device = device
        self.table = TreeTable.empty(device)

    def state_dict(self) -> dict[str, Any]:
        return self.table.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.table = TreeTable.from_state(state, self._device)


class ClosedForm(Learner):
    """Stores no images and trains no network. It is solved when something is to be predicted.

    Args:
        setup: of which the backbone is frozen.
        statistics: sums of the samples.
    """

    def __init__(self, setup: Setup, statistics: NodeSums) -> None:
        self.f0 = FrozenFeatures(setup.backbone)
        self.statistics = statistics
        self.device = setup.backbone.device
        self.tree = Tree(self.device)
        self._solution: dict[int, Affine] | None = None

    @abstractmethod
    def solve(self, level: int, table: TreeTable) -> Affine:
        """The logits of a level, by the tree as it is now."""

    def frozen_features(self, x: Tensor) -> Tensor:
        return self.f0.kept(x)

    def embed(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) uint8 -> φ (B, D), of unit length."""
        return F.normalize(self.f0.kept(x))

    @torch.no_grad()
    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.tree.table = TreeTable.of(taxonomy, self.device)
        self.statistics.add(self.embed(batch.x), batch.y.to(self.device), self.tree.table)
        self._solution = None
        return {}

    @torch.no_grad()
    def forget(self, batch: Batch, taxonomy: Taxonomy) -> None:
        self.statistics.remove(self.embed(batch.x), batch.y.to(self.device), self.tree.table)
        self._solution = None

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        phi = self.embed(x)
        return {level: torch.softmax(phi @ W.t() + b, 1) for level, (W, b) in self._solved().items()}

    @torch.no_grad()
    def _solved(self) -> dict[int, Affine]:
        """Kept until something is learned."""
        if self._solution is None:
            table = self.tree.table
            self._solution = {level: self.solve(level, table) for level in table.levels}
        return self._solution

    def reader(self, lagging: bool = False) -> Self:
        self._solved()
        return super().reader(lagging)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._solution = None

    def components(self) -> dict[str, Stateful]:
        return {"statistics": self.statistics, "tree": self.tree}
