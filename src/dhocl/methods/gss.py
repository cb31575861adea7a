"""Gradient-based sample selection, greedy (Aljundi et al. 2019, Algorithm 2): keep gradients that disagree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.learner import Batch, Setup
from dhocl.memory import Memory
from dhocl.methods.er import ER, ReplaySettings
from dhocl.rng import Rng
from dhocl.taxonomy import Taxonomy

FIRST = 1.1  # score of the first batch, which has nothing to be compared with: the authors' value
LEAST = 1e-6  # a score or weight of 0 could never be drawn, and two of them would make 0 / 0


@dataclass(frozen=True)
class GssSettings(ReplaySettings):
    subset: int = 10  # gradients of the memory to compare with, each the mean over a random replay batch

    positive = frozenset({"subset"})


class Gradients(NamedTuple):
    """Of n items, as g ⊗ f: g is ∂ℓ/∂features, f the features."""

    g: Tensor  # (n, d)
    f: Tensor  # (n, d)


def products(a: Gradients, b: Gradients) -> Tensor:
    """(n, m) inner products, in double precision: gradients of well-learned items are tiny."""
    return (a.g.double() @ b.g.double().t()) * (a.f.double() @ b.f.double().t())


def similarities(batch: Gradients, memory: Gradients, part: Tensor) -> tuple[Tensor, Tensor]:
    """The largest cosine to the mean gradients of the memory's parts: of the batch's mean (), of each item (b,).

    `part` (m,) is the part of each stored item, from 0 on. Sums have the direction of means, and their inner product is
    the sum of the inner products, so no gradient has to be written out.
    """
    member = F.one_hot(part).double()  # (m, parts)
    lengths = (member * (products(memory, memory) @ member)).sum(0)  # (parts,) squared
    own = products(batch, batch)  # (b, b)
    across = products(batch, memory) @ member  # (b, parts)
    whole = across.sum(0) / (own.sum() * lengths).clamp_min(1e-60).sqrt()  # by rounding, a sum of 0 can be negative
    each = across / (own.diagonal()[:, None] * lengths).clamp_min(1e-60).sqrt()
    return whole.max().float(), each.amax(1).float()


class Greedy(Memory):
    """An item's score C is 1 + the largest cosine of its gradient to the mean gradients of random parts of the memory.

    A full memory considers a batch only if its mean gradient has a negative cosine to all of these parts. Each item is
    then paired with a stored one, drawn in proportion to its score minus the smallest score, and replaces it with
    probability C_stored / (C_stored + C). This is the rule of the authors' code. Algorithm 2 tests each item on its own
    against single stored items: few pass, and the memory stays as it was filled.
    """

    def __init__(
        self, capacity: int, rng: Rng, parts: tuple[int, int], gradients: Callable[[Tensor, Tensor], Gradients]
    ) -> None:
        super().__init__(capacity, rng)
        self._parts, self._part = parts  # how many, and how many items each
        self._gradients = gradients  # of images and labels, by today's network

    def insert(self, **items: Tensor) -> None:
        super().insert(**items, score=torch.full((len(items["y"]),), FIRST))

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        n = len(items["y"])
        batch_cosine = -1.0
        if self.size:
            batch_cosine, cosines = self._similarities(items)
            items["score"].copy_((1 + cosines).clamp_min(LEAST))  # what `insert` is about to write
        if self.size < self.capacity:  # of a batch that does not fit, the first items
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
        whole, each = similarities(
            self._gradients(items["x"], items["y"]), memory, torch.arange(len(slots)) // self._part
        )
        return whole.item(), each


class GSS(ER):
    """Replay from a memory of gradients that point apart.

    What is compared is ∂ℓ/∂features ⊗ features, ℓ the cross-entropy at the given level, in closed form: per-sample
    gradients of the whole backbone cost a backward an image. The gradient of the last layer, (p - onehot) ⊗ features,
    would be as cheap, but levels have heads of their own, so two items of different levels would be orthogonal and
    never in conflict. The features are what they share.

    An arriving batch is compared with `subset` replay batches, one forward an image: with the defaults GSS costs 2.3
    times ER.
    """

    def __init__(self, setup: Setup, settings: GssSettings) -> None:
        self.settings = settings
        self.tree = Taxonomy()
        super().__init__(setup, settings)

    def make_memory(self) -> Memory:
        parts = self.settings.subset, max(1, self.setup.replay_batch)
        return Greedy(self.setup.buffer, self.rng, parts, self.gradients)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.tree = taxonomy  # for the memory, which asks for gradients of its own accord
        return super().learn(batch, taxonomy)

    @torch.no_grad()
    def gradients(self, x: Tensor, y: Tensor) -> Gradients:
        """Wᵀ(p - onehot) and the features of images (n, 3, H, W) with labels (n,)."""
        output, heads = self.net(x), self.net.heads.levels
        g = torch.empty_like(output.features)  # (n, d)
        for level, rows, columns in self.tree.by_level(y):
            logits = output.logits[level][rows]
            g[rows] = (logits.softmax(1) - F.one_hot(columns, logits.shape[1])) @ heads[level].weight
        return Gradients(g, output.features)
