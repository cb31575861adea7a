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

LEAST = 1e-6  # a score of 0 could never be drawn, and two of them would make 0 / 0


@dataclass(frozen=True)
class GssSettings(ReplaySettings):
    subset: int = 10  # stored items that each arriving one is compared with

    positive = frozenset({"subset"})


class Directions(NamedTuple):
    """Unit vectors g (of ∂ℓ/∂features) and f (of the features); an item's gradient points along g ⊗ f."""

    g: Tensor  # (n, d)
    f: Tensor  # (n, d)


def cosines(a: Directions, b: Directions) -> Tensor:
    """(n, m) between the gradients of two sets: the cosine of outer products is the product of the cosines."""
    return (a.g @ b.g.t()) * (a.f @ b.f.t())


class Greedy(Memory):
    """An item's score is 1 and the largest cosine of its gradient to those of a random subset, when it came.

    A full memory admits only who disagrees with all of its subset: score c < 1. It then takes the place of a stored
    one, drawn with probability in proportion to its score C, if the coin of C / (C + c) says so. The first item of all
    has nobody to compare with and scores 1, as if its gradient were orthogonal.
    """

    def __init__(
        self, capacity: int, rng: Rng, subset: int, directions: Callable[[Tensor, Tensor], Directions]
    ) -> None:
        super().__init__(capacity, rng)
        self._subset = subset
        self._directions = directions  # of images and labels, by today's network

    def insert(self, **items: Tensor) -> None:
        super().insert(**items, score=torch.zeros(len(items["y"])))

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """One by one as in the algorithm, though what is random is drawn first, to have all gradients by one pass."""
        n = len(items["y"]) if self.capacity else 0
        room = [min(self.capacity, self.size + row) for row in range(n)]  # filled when each item comes
        draws = [(self._rng.choice(m, min(m, self._subset), replace=False), *self._rng.random(2)) for m in room]
        table, column = self._table(items, [subset for subset, _, _ in draws])
        score = np.zeros(self.capacity, dtype=np.float32)
        score[: self.size] = self.columns["score"][: self.size] if self.size else 0
        placed: dict[int, int] = {}  # slot -> row: of two items for one slot the later stays
        for row, (subset, pick, coin) in enumerate(draws):
            c = max(1 + float(table[row, column[subset]].max()), LEAST) if len(subset) else 1.0
            slot = room[row]
            if slot == self.capacity:
                slot = int(np.searchsorted(total := score.cumsum(), pick * total[-1], side="right"))
                if c >= 1 or coin >= score[slot] / (score[slot] + c):
                    continue
            score[slot], column[slot], placed[slot] = c, row, row
            items["score"][row] = c  # what `insert` is about to write
        return np.array(list(placed.values()), dtype=np.int64), np.array(list(placed), dtype=np.int64)

    def _table(self, items: dict[str, Tensor], subsets: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Cosines of the arriving items to themselves and to the stored ones that were drawn, and a slot's column."""
        column = np.zeros(self.capacity, dtype=np.int64)
        if not subsets:
            return np.empty((0, 0)), column
        drawn = np.unique(np.concatenate(subsets))
        drawn = drawn[drawn < self.size]  # others are of this batch
        new = known = self._directions(items["x"], items["y"])
        if len(drawn):
            stored = self.read(drawn)
            old = self._directions(stored["x"], stored["y"])
            known = Directions(torch.cat([new.g, old.g]), torch.cat([new.f, old.f]))
            column[drawn] = len(new.g) + np.arange(len(drawn))
        return cosines(new, known).numpy(), column


class GSS(ER):
    """Replay from a memory of gradients that point apart.

    What is compared is ∂ℓ/∂features ⊗ features, ℓ the cross-entropy at the given level, in closed form: per-sample
    gradients of the whole backbone cost a backward an image. The gradient of the last layer, (p - onehot) ⊗ features,
    would be as cheap, but levels have heads of their own, so two items of different levels would be orthogonal and
    never in conflict. The features are what they share.

    Each arriving item has a subset of its own, which is `subset` forwards: with the defaults GSS costs 3 times ER.
    """

    def __init__(self, setup: Setup, settings: GssSettings) -> None:
        self.settings = settings
        self.tree = Taxonomy()
        super().__init__(setup, settings)

    def make_memory(self) -> Memory:
        return Greedy(self.setup.buffer, self.rng, self.settings.subset, self.directions)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.tree = taxonomy  # for the memory, which asks for gradients of its own accord
        return super().learn(batch, taxonomy)

    @torch.no_grad()
    def directions(self, x: Tensor, y: Tensor) -> Directions:
        """Wᵀ(p - onehot) and the features of images (n, 3, H, W) with labels (n,), each scaled to length 1."""
        output, heads = self.net(x), self.net.heads.levels
        gradients = torch.empty_like(output.features)  # (n, d)
        for level, rows, columns in self.tree.by_level(y):
            logits = output.logits[level][rows]
            residuals = logits.softmax(1) - F.one_hot(columns, logits.shape[1])
            gradients[rows] = residuals @ heads[level].weight
        return Directions(F.normalize(gradients), F.normalize(output.features))
