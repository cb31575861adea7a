"""The memory of CLIB and PL-FMS written out slowly, to compare their steps with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.methods.clib import CLIB
from dhocl.nn.network import Network
from tests.helpers.reference_replay import Item, assert_holds, logits, nll, stored


@dataclass
class Kept:
    item: Item
    score: np.float32  # H
    loss: float | None = None  # at the last look
    used: bool = False
    pseudo: int = UNKNOWN


class ScoredByHand:
    def __init__(self, capacity: int, rng: Rng, by_level: bool = False) -> None:
        self.capacity, self.rng, self.by_level = capacity, rng, by_level
        self.held: list[Kept] = []
        self.steps = 0
        self.evicted = 0

    def insert(self, items: Sequence[Item], tree: Taxonomy) -> None:
        for item in items:
            kin = [kept.score for kept in self.held if kept.item.y == item.y]
            scores = kin or [kept.score for kept in self.held] or [np.float32(0)]
            new = Kept(item, np.array(scores, dtype=np.float32).mean())
            if len(self.held) < self.capacity:
                self.held.append(new)
            else:
                self.held[self._victim(new, tree)] = new
                self.evicted += 1

    def _victim(self, new: Kept, tree: Taxonomy) -> int:
        """The item of smallest score in the largest class, the newcomer counted, of those that have a stored item."""
        counts = Counter(name for kept in [*self.held, new] for name in counted(kept, tree))
        classes = {name for kept in self.held for name in counted(kept, tree)}
        if self.by_level:
            levels = Counter[int]()
            for name, count in counts.items():
                levels[tree.labels[name].level] += count
            there = sorted({tree.labels[name].level for name in classes})
            largest_level = max(there, key=lambda level: levels[level])
            classes = {name for name in classes if tree.labels[name].level == largest_level}
        most = max(counts[name] for name in classes)
        largest = self.rng.choice(sorted(name for name in classes if counts[name] == most))
        members = [slot for slot, kept in enumerate(self.held) if largest in counted(kept, tree)]
        return min(members, key=lambda slot: self.held[slot].score)

    def take(self, n: int) -> list[int]:
        slots = self.rng.choice(len(self.held), min(n, len(self.held)), replace=False, shuffle=False).tolist()
        for slot in slots:
            self.held[slot].used = True
        self.steps += 1
        return slots

    def look(self, net: Network, tree: Taxonomy, decay: float, threshold: float = math.inf) -> None:
        """H_i += (1 - κ)(D - mean H of those trained on), for those trained on; D the mean drop of the loss."""
        x, y = stored(self.items, range(len(self.held)))
        losses = nll(net, x, y, tree)
        drops = [kept.loss - now for kept, now in zip(self.held, losses, strict=True) if kept.loss is not None]
        trained = [kept for kept in self.held if kept.used]
        if drops and trained:
            change = (1 - decay) * (np.mean(drops) - np.mean([kept.score for kept in trained]))
            for kept in trained:
                kept.score = np.float32(kept.score + change)
        with torch.no_grad():
            p = {level: z.softmax(1) for level, z in logits(net, x).items()}
        for row, (kept, now) in enumerate(zip(self.held, losses, strict=True)):
            kept.loss, kept.used = now, False
            kept.pseudo = guessed({level: values[row].tolist() for level, values in p.items()}, y[row], tree, threshold)
        self.steps = 0

    @property
    def items(self) -> list[Item]:
        return [kept.item for kept in self.held]

    def assert_like(self, learner: CLIB) -> None:
        """The learner's memory is the same, up to rounding; its scores are taken over, so that ties stay ties."""
        assert_holds(learner, self.items)
        columns = {name: column[: len(self.held)].tolist() for name, column in learner.memory.columns.items()}
        assert np.allclose(columns["score"], [kept.score for kept in self.held], rtol=1e-3, atol=1e-6)
        assert columns["used"] == [kept.used for kept in self.held]
        expected = [math.nan if kept.loss is None else kept.loss for kept in self.held]
        assert np.allclose(columns["loss"], expected, rtol=1e-3, atol=1e-5, equal_nan=True)
        assert columns.get("pseudo", [UNKNOWN] * len(self.held)) == [kept.pseudo for kept in self.held]
        assert learner.memory.steps == self.steps
        for kept, score in zip(self.held, columns["score"], strict=True):
            kept.score = np.float32(score)


def counted(kept: Kept, tree: Taxonomy) -> list[int]:
    """The given class, and those below it down to the pseudo-label."""
    line = [] if kept.pseudo == UNKNOWN else tree.lineage(kept.pseudo)
    return [kept.item.y, *(line[: line.index(kept.item.y)] if kept.item.y in line else [])]


def guessed(p: dict[int, list[float]], given: int, tree: Taxonomy, threshold: float) -> int:
    """The finest class below the given one on a path of probabilities from the threshold on."""
    at = given
    for level in tree.levels:
        below = [node for node in tree.descendants(at) if tree.labels[node].level == level]
        if below:
            best = max(below, key=lambda node: p[level][tree.column(node)])
            at = best if p[level][tree.column(best)] >= threshold else at
    return UNKNOWN if at == given else at
