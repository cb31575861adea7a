"""Gradient-based sample selection, greedy (Aljundi et al. 2019, Algorithm 2): store items with diverse gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.memory import Memory

FIRST = 1.1  # score of the first batch, which has no stored items to compare with: the authors' value
LEAST = 1e-6  # items of score or weight 0 could never be drawn, and two scores of 0 would give 0 / 0


@dataclass(frozen=True)
class GssSettings(ReplaySettings):
    subset: int = 10  # memory gradients to compare with, each the mean over a random replay batch

    positive = frozenset({"subset"})


class Gradients(NamedTuple):
    """Gradients g ⊗ f of n items: g is ∂ℓ/∂features, f the features."""

    g: Tensor  # (n, d)
    f: Tensor  # (n, d)


def products(a: Gradients, b: Gradients) -> Tensor:
    """(n, m) inner products, in double precision: gradients of well-learned items are tiny."""
    return (a.g.double() @ b.g.double().t()) * (a.f.double() @ b.f.double().t())


def similarities(batch: Gradients, memory: Gradients, part: Tensor) -> tuple[Tensor, Tensor]:
    """Largest cosine to the mean gradients of the parts of the memory: of the batch mean (), of each item (b,).

    `part` (m,) is the index of each stored item's part. Cosines of means are computed from sums of inner products, so
    the full gradients are never formed.
    """
    member = F.one_hot(part).double()  # (m, parts)
    lengths = (member * (products(memory, memory) @ member)).sum(0)  # (parts,) squared
    own = products(batch, batch)  # (b, b)
    across = products(batch, memory) @ member  # (b, parts)
    whole = across.sum(0) / (own.sum() * lengths).clamp_min(1e-60).sqrt()  # rounding can make a sum of 0 negative
    each = across / (own.diagonal()[:, None] * lengths).clamp_min(1e-60).sqrt()
    return whole.max().float(), each.amax(1).float()


class Greedy(Memory):
    """An item's score C is 1 + the largest cosine of its gradient to the mean gradients of random parts of the memory.

    A full memory considers a batch only if its mean gradient has a negative cosine to all of these parts. Each item is
    then paired with a stored one, drawn in proportion to its score minus the smallest score, and replaces it with
    probability C_stored / (C_stored + C). This is the rule of the authors' code. Algorithm 2 compares single items
    instead: few pass the test, and the memory hardly changes once it is full.
    """

    def __init__(
        self, capacity: int, rng: Rng, parts: tuple[int, int], gradients: Callable[[Tensor, Tensor], Gradients]
    ) -> None:
        super().__init__(capacity, rng)
        self._parts, self._part = parts  # number of parts, items in each
        self._gradients = gradients  # (images, labels) -> gradients under the current network

    def insert(self, **items: Tensor) -> None:
        super().insert(**items, score=torch.full((len(items["y"]),), FIRST))

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        n = len(items["y"])
        batch_cosine = -1.0
        if self.size:
            batch_cosine, cosines = self._similarities(items)
            items["score"].copy_((1 + cosines).clamp_min(LEAST))  # written by `insert`
        if self.size < self.capacity:  # the first items of a batch that does not fit
            rows = np.arange(min(n, self.capacity - self.size))
            return rows, self.size + rows
        if batch_cosine >= 0 or not self.capacity:
            return np.arange(0), np.arange(0)
        stored = self.columns["score"].double().numpy()
        weight = stored - stored.min() + LEAST
        slots = self._rng.choice(self.capacity, min(n, self.capacity), replace=False, p=weight / weight.sum())
        new = items["score"].numpy()[: len(slots)]
        won = self._rng.random(len(slots)) < stored[slots] / (stored[slots] + new)
        return np.flatnonzero(won), slots[won]

    def _similarities(self, items: dict[str, Tensor]) -> tuple[float, Tensor]:
        slots = self._rng.permutation(self.size)[: self._parts * self._part]
        stored = self.read(slots)
        memory = self._gradients(stored["x"], stored["y"])
        part = torch.arange(len(slots), device=memory.g.device) // self._part
        whole, each = similarities(self._gradients(items["x"], items["y"]), memory, part)
        return whole.item(), each


class GSS(ER):
    """Replay from a memory of items with diverse gradients.

    Compares ∂ℓ/∂features ⊗ features in closed form, where ℓ is the cross-entropy at the given level. Per-sample
    gradients of the whole backbone would take one backward pass per image. The gradient of the last layer,
    (p - onehot) ⊗ features, is as cheap, but levels have separate heads: items of different levels would be orthogonal.

    Each batch is compared with `subset` replay batches, one forward pass per image. With the defaults GSS costs 2.3
    times ER.
    """

    settings: GssSettings
    tree: Taxonomy  # of the last step, used by `gradients`

    def make_memory(self) -> Memory:
        parts = self.settings.subset, max(1, self.setup.replay_batch)
        return Greedy(self.setup.buffer, self.rng, parts, self.gradients)

    def follow(self, taxonomy: Taxonomy) -> None:
        super().follow(taxonomy)
        self.tree = taxonomy

    @torch.no_grad()
    def gradients(self, x: Tensor, y: Tensor) -> Gradients:
        """Wᵀ(p - onehot) and the features of images (n, 3, H, W) with labels (n,)."""
        output, heads = self.net(x), self.net.heads.levels
        g = torch.empty_like(output.features)  # (n, d)
        for level, rows, columns in self.tree.by_level(y):
            logits = output.logits[level][rows]
            g[rows] = (logits.softmax(1) - F.one_hot(columns.to(logits.device), logits.shape[1])) @ heads[level].weight
        return Gradients(g, output.features)
