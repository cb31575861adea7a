"""PL-FMS (Lee et al. 2023, HLE): memory balanced by pseudo-labels, flexible sampling for new classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.methods.clib import CLIB, ClibSettings, Scored
from dhocl.nn.learner import Batch, Setup, Stateful


@dataclass(frozen=True)
class PlfmsSettings(ClibSettings):
    lr_backbone: float = 1e-5
    threshold: float = 0.8  # smallest probability of a pseudo-label; above 1 the memory is CLIB's


def lineages(tree: Taxonomy) -> Tensor:
    """(nodes, levels) node id of each node's ancestor (or itself) at each observed level, -1 if unknown."""
    lines = tree.paths.clone()
    for place, level in enumerate(tree.levels):
        known = lines[:, place] != UNKNOWN
        lines[known, place] = tree.nodes(level)[lines[known, place]]
    return lines


def pseudo_labels(p: dict[int, Tensor], y: Tensor, tree: Taxonomy, threshold: float) -> Tensor:
    """(n,) the finest node below the given one with probability >= threshold, -1 for none; p (n, classes) per level.

    Goes from coarse to fine; each prediction must be below the last one, so all are on one path with the given label.
    Levels above the label are not predicted.
    """
    lines = lineages(tree)
    at = y
    for level in tree.levels:
        nodes = tree.resolve(tree.nodes(level))  # (C,) merged classes replaced by their accepted class
        place = (lines[at] == at[:, None]).long().argmax(1)  # (n,) place of the level of `at`
        below = lines[nodes][:, place].t() == at[:, None]  # (n, C)
        best, column = p[level].masked_fill(~below, -1).max(1)
        at = torch.where(best >= threshold, nodes[column], at)
    return torch.where(at == y, UNKNOWN, at)


class PseudoLabelled(Scored):
    """Counts an item for its given class and for the classes below it on the path to its pseudo-label (`pseudo`).

    Ancestors of the given class do not count: a root would include everything below it and always be the largest
    class, so finer classes would not be balanced. A pseudo-label that is no longer below the given class is ignored.
    """

    def insert(self, **items: Tensor) -> None:
        super().insert(**items, pseudo=torch.full_like(items["y"], UNKNOWN))

    def classes(self, items: dict[str, Tensor]) -> Tensor:
        y, pseudo = items["y"][:, None], items["pseudo"]
        line = lineages(self.tree)[pseudo.clamp_min(0)]  # (n, levels)
        given = (line == y).long()
        below = (given.cumsum(1) - given > 0) & (pseudo != UNKNOWN)[:, None]
        return torch.cat([y, torch.where(below, line, UNKNOWN)], 1)


def use_probability(elapsed: int, length: int, classes: int) -> float:
    """min(1, elapsed / (κ_F / C)): from 0 when a class is new to 1 after its mean share of the stream."""
    return min(1.0, elapsed * classes / max(1, length))


class Sightings:
    """Sample at which each class first occurred.

    The paper's κ_F is the length of the stream, which a learner does not know. It is estimated as twice the samples
    seen so far, the median estimate at a random moment.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._first: dict[int, int] = {}

    def meet(self, y: Tensor) -> np.ndarray:
        """(b,) probability of using each of the new items."""
        p = np.empty(len(y))
        for row, node in enumerate(y.tolist()):
            first = self._first.setdefault(node, self.seen)
            p[row] = use_probability(self.seen - first, 2 * self.seen, len(self._first))
            self.seen += 1
        return p

    def follow(self, taxonomy: Taxonomy) -> None:
        """A merged class first occurred when the first of its synonyms did."""
        if not taxonomy.merges:
            return
        firsts, self._first = self._first, {}
        for node, first in firsts.items():
            accepted = taxonomy.accepted(node)
            self._first[accepted] = min(first, self._first.get(accepted, first))

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "first": [[node, sample] for node, sample in self._first.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen, self._first = state["seen"], dict(state["first"])


class PLFMS(CLIB):
    """CLIB that also trains on the stream: on few images of a new class, and on all of them later.

    Items from the memory replace the omitted stream images, so the batch size is constant. Pseudo-labels are computed
    when CLIB scores the memory, at no extra cost. Until then an item counts for its given class only. They are never
    trained on. The released code has none, so they follow the paper. CutMix is omitted: all methods augment alike.
    """

    settings: PlfmsSettings

    def __init__(self, setup: Setup, settings: PlfmsSettings) -> None:
        super().__init__(setup, settings)
        self.sightings = Sightings()

    def make_memory(self) -> Scored:
        return PseudoLabelled(self.setup.buffer, self.rng, self.settings.quota == "level")

    def follow(self, taxonomy: Taxonomy) -> None:
        super().follow(taxonomy)
        self.sightings.follow(taxonomy)

    def chosen(self, batch: Batch) -> Batch:
        first = self.sightings.seen == 0
        used = self.rng.random(len(batch.y)) < self.sightings.meet(batch.y)
        if first or not self.memory.size:  # nothing else to train on
            used[:] = True
        items = self.memory.take(len(batch.y) + self.setup.replay_batch - int(used.sum()))
        rows = torch.from_numpy(used)
        return Batch(torch.cat([batch.x[rows], items["x"]]), torch.cat([batch.y[rows], items["y"]]))

    def seen(self, p: dict[int, Tensor], y: Tensor, taxonomy: Taxonomy) -> dict[str, Tensor]:
        return super().seen(p, y, taxonomy) | {"pseudo": pseudo_labels(p, y, taxonomy, self.settings.threshold)}

    def components(self) -> dict[str, Stateful]:
        return {"sightings": self.sightings, **super().components()}
