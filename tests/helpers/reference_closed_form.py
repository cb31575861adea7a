"""Slow references for methods on frozen features: a stream that revises its tree, and all its samples in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dhocl.checks import pictures, setup
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.nn.learner import Batch, Learner
from tests.helpers.reference_others import path


def features(x: Tensor) -> np.ndarray:
    """Unit-length features of the untrained backbone, one image at a time, in float64."""
    backbone = setup().backbone.eval()
    with torch.no_grad():
        rows = np.concatenate([backbone(image[None])[0].double().numpy() for image in x])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def revised_stream(b: int = 24) -> Iterator[tuple[Batch, Taxonomy]]:
    """Three levels; classes arrive over time; a late link, a link that moves, a class without images, a merge."""
    tree, rng = Taxonomy(), np.random.default_rng(0)
    names = ["animal:0", "bird:1", "robin:2", "crow:2", "pike:2", "fish:1", "cod:2", "rock:0", "jet:2", "gem:1"]
    labels = [Label(name[:-2], int(name[-1])) for name in names]
    links = {1: {"robin": "bird", "bird": "animal"}, 2: {"pike": "bird", "fish": "animal", "cod": "fish"}}
    links |= {3: {"pike": "fish", "crow": "bird"}, 4: {"gem": "rock"}, 5: {"jet": "gem"}}
    named = {label.name: label for label in labels}
    for step, arrived in enumerate([4, 5, 7, 8, 9, 9, 9]):
        for label in labels[:arrived]:
            tree.add(label)
        if step == 4:
            tree.add(labels[9])  # has no image before the last batch
        for child, parent in links.get(step, {}).items():
            tree.link(tree.id(named[child]), tree.id(named[parent]))
        if step == 6:
            tree.merge(tree.id(named["crow"]), tree.id(named["robin"]))
        streamed = [tree.id(label) for label in labels[: arrived + (step == 6)]]
        nodes = np.concatenate([streamed, rng.choice(streamed, b - len(streamed))])
        yield Batch(pictures((nodes % 4).tolist(), rng), torch.from_numpy(nodes)), tree


class Samples:
    """All samples of a stream."""

    def __init__(self) -> None:
        self.phi: list[np.ndarray] = []
        self.nodes: list[int] = []

    def add(self, batch: Batch) -> None:
        self.phi += list(features(batch.x))
        self.nodes += batch.y.tolist()

    def at(self, level: int, tree: Taxonomy) -> Known:
        """Those with a known class at a level."""
        place = tree.levels.index(level)
        columns = [path(tree, node)[place] for node in self.nodes]
        rows = [i for i, column in enumerate(columns) if column >= 0]
        return Known(rows, np.array(self.phi)[rows], np.array(columns)[rows])


class Known(NamedTuple):
    rows: list[int]  # among all samples
    phi: np.ndarray  # (n, D)
    columns: np.ndarray  # (n,)


def followed(learner: Learner, x: Tensor) -> Iterator[tuple[Samples, Taxonomy, dict[int, Tensor]]]:
    """After each batch of `revised_stream`: all samples so far, the tree, and what the learner predicts of x."""
    samples = Samples()
    for batch, tree in revised_stream():
        assert learner.learn(batch, tree) == {}
        samples.add(batch)
        predicted = learner.predict(x)
        assert list(predicted) == tree.levels
        yield samples, tree, predicted
