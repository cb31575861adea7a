"""Trees, streams and learners of any size for benchmarks; images are noise."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.methods import METHODS
from dhocl.nn.backbones import Backbone
from dhocl.nn.learner import Batch, Learner, Setup

BATCH, REPLAY = 32, 16


def names(classes: int, levels: int) -> list[list[Label]]:
    """`classes` names at the finest level, and fewer by a constant factor per level, down to five at the coarsest."""
    widths = np.geomspace(min(5, classes), classes, levels).round().astype(int).tolist() if levels > 1 else [classes]
    return [[Label(f"{level}.{i}", level) for i in range(width)] for level, width in enumerate(widths)]


def grow(labels: list[list[Label]]) -> Taxonomy:
    """The tree of these names, added and linked in order of the levels."""
    tree = Taxonomy()
    above: list[int] = []
    for level in labels:
        nodes = []
        for i, label in enumerate(level):
            nodes.append(node := tree.add(label))
            if above:
                tree.link(node, above[i * len(above) // len(level)])
        above = nodes
    return tree


def full_tree(classes: int, levels: int) -> Taxonomy:
    return grow(names(classes, levels))


class World:
    """Batches with labels of a known tree, each image at a random level."""

    def __init__(self, tree: Taxonomy, size: int, seed: int = 0) -> None:
        self.tree = tree
        self._size = size
        self._rng = np.random.default_rng(seed)

    def labels(self, n: int) -> Tensor:
        levels = self._rng.choice(self.tree.levels, n)
        return torch.stack([self.tree.nodes(h)[self._rng.integers(self.tree.widths[h])] for h in levels.tolist()])

    def images(self, n: int) -> Tensor:
        return torch.from_numpy(self._rng.integers(0, 256, (n, 3, self._size, self._size), dtype=np.uint8))

    def batch(self) -> Batch:
        return Batch(self.images(BATCH), self.labels(BATCH))

    def names(self, y: Tensor) -> list[Label]:
        return [self.tree.labels[node] for node in y.tolist()]


def make_learner(method: str, backbone: Backbone, buffer: int = 200, **settings: object) -> Learner:
    entry = METHODS[method]
    return entry.learner(Setup(backbone, buffer, REPLAY, True, 0), entry.settings(**settings))  # type: ignore[call-arg]
