"""PL-FMS (Lee et al. 2023, HLE): pseudo-labels balance the memory, flexible sampling spares classes just met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dhocl.learner import Batch, Part, Setup
from dhocl.methods.clib import CLIB, ClibSettings, Scored
from dhocl.taxonomy import UNKNOWN, Taxonomy


@dataclass(frozen=True)
class PlfmsSettings(ClibSettings):
    threshold: float = 0.8  # probability from which a guess is a pseudo-label; above 1 the memory is CLIB's


def lineages(tree: Taxonomy) -> Tensor:
    """(nodes, levels) each node's ancestor (or itself) at each observed level, as a node, -1 where unknown."""
    lines = tree.paths.clone()
    for place, level in enumerate(tree.levels):
        known = lines[:, place] != UNKNOWN
        lines[known, place] = tree.nodes(level)[lines[known, place]]
    return lines


def pseudo_labels(p: dict[int, Tensor], y: Tensor, tree: Taxonomy, threshold: float) -> Tensor:
    """(n,) the finest node that is surely below the given one, -1 for none; p (n, classes) per level.

    From coarse to fine a guess must lie below the last one, so all guesses are on one path with the given label.
    Levels above it need no guess: they are the tree's to tell, and stay unknown where it does not.
    """
    lines = lineages(tree)
    at = y
    for level in tree.levels:
        nodes = tree.resolve(tree.nodes(level))  # (C,) the column of a merged class speaks for its accepted class
        place = (lines[at] == at[:, None]).long().argmax(1)  # (n,) of its own level
        below = lines[nodes][:, place].t() == at[:, None]  # (n, C)
        best, column = p[level].masked_fill(~below, -1).max(1)
        at = torch.where(best >= threshold, nodes[column], at)
    return torch.where(at == y, UNKNOWN, at)


class PseudoLabelled(Scored):
    """Counts an item for its given class and for those on the way down to its pseudo-label (column `pseudo`).

    Its known ancestors do not count: each root would hold all that is below it and always be the largest, so nothing
    finer would ever be balanced. A link that moved away since the guess makes the guess void.
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
    """min(1, elapsed / (κ_F / C)): from 0 when a class is first met to 1 after its mean share of the stream."""
    return min(1.0, elapsed * classes / max(1, length))


class Sightings:
    """When each class was first met, in samples.

    The paper's κ_F is the length of the stream, which a learner can not know. It is taken as twice what has passed: as
    much to come as there was, the median guess at a random moment. So nothing of the future leaks in.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._first: dict[int, int] = {}

    def meet(self, y: Tensor) -> np.ndarray:
        """(b,) probability to use each of the arriving items."""
        p = np.empty(len(y))
        for row, node in enumerate(y.tolist()):
            first = self._first.setdefault(node, self.seen)
            p[row] = use_probability(self.seen - first, 2 * self.seen, len(self._first))
            self.seen += 1
        return p

    def follow(self, taxonomy: Taxonomy) -> None:
        """A class was met when the first of its synonyms was."""
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
    """CLIB that trains on the stream too, on few images of a class that was met just now and on all of it later.

    What is left out of the stream's batch is made up for from the memory, so the batch has one size. Pseudo-labels are
    guessed in CLIB's looks at the memory, which makes them free; until its first look an item is counted for its given
    class. They are for counting and never trained on. The released code has no pseudo-labels at all, so these follow
    the paper's idea; its CutMix is left out, as augmentation is the same for all methods.
    """

    settings: PlfmsSettings

    def __init__(self, setup: Setup, settings: PlfmsSettings) -> None:
        super().__init__(setup, settings)
        self.sightings = Sightings()

    def make_memory(self) -> Scored:
        return PseudoLabelled(self.setup.buffer, self.rng, self.settings.quota == "level")

    def chosen(self, batch: Batch) -> Batch:
        self.sightings.follow(self.memory.tree)
        first = self.sightings.seen == 0
        used = self.rng.random(len(batch.y)) < self.sightings.meet(batch.y)
        if first or not self.memory.size:  # nothing else to train on
            used[:] = True
        items = self.memory.take(len(batch.y) + self.setup.replay_batch - int(used.sum()))
        rows = torch.from_numpy(used)
        return Batch(torch.cat([batch.x[rows], items["x"]]), torch.cat([batch.y[rows], items["y"]]))

    def seen(self, p: dict[int, Tensor], y: Tensor, taxonomy: Taxonomy) -> dict[str, Tensor]:
        return super().seen(p, y, taxonomy) | {"pseudo": pseudo_labels(p, y, taxonomy, self.settings.threshold)}

    def parts(self) -> dict[str, Part]:
        return super().parts() | {"sightings": self.sightings}
