"""What two models fitted, and what they wait for, is joined: each part against numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import torch

from dhocl import Label, Model, ModelConfig, Taxonomy
from dhocl.knowledge import KnowledgeSource
from dhocl.knowledge.source import Statement
from dhocl.methods.amber import Amber
from dhocl.model.merging import merge
from dhocl.nn.heads.penalties import Penalties
from dhocl.nn.heads.reliability import SHAPE, START, Reliability

DIM = 4


class Silent(KnowledgeSource):
    def query(self, label: Label, known: Taxonomy) -> Iterable[Statement]:
        return []


def test_penalties_become_the_weighted_geometric_mean() -> None:
    here, there = Penalties([1, 3], [2.0, 8.0]), Penalties([1, 3], [2.0, 8.0])
    here.log = {0: torch.tensor([1.0, 4.0]).log()}
    there.log = {0: torch.tensor([16.0, 4.0]).log(), 1: torch.tensor([32.0, 0.5]).log()}
    here.absorb(there, 0.25)
    assert here(0).tolist() == pytest.approx([2.0, 4.0, 4.0, 4.0])  # 1^.75 16^.25
    assert here(1).tolist() == pytest.approx([2.0**0.75 * 32.0**0.25, *[8.0**0.75 * 0.5**0.25] * 3])  # from its start
    here.learn(torch.ones(40, 4), 1)  # a level that only the other knew can take a step
    assert here.log[1].shape == (2,)


def test_reliabilities_become_the_weighted_mean() -> None:
    here, there = Reliability(), Reliability()
    here.log_beta, there.log_beta = {0: math.log(2.0)}, {0: math.log(32.0), 1: math.log(3.0)}
    here.shapes, there.shapes = {0: [0.0, 4.0]}, {1: [8.0, -2.0]}
    here.absorb(there, 0.25)
    assert here.beta(0) == pytest.approx(4.0)
    assert here.beta(1) == pytest.approx(START**0.75 * 3.0**0.25)
    assert here.shapes[0] == pytest.approx([0.25 * SHAPE[0], 3.0 + 0.25 * SHAPE[1]])
    assert here.shapes[1] == pytest.approx([0.75 * SHAPE[0] + 2.0, 0.75 * SHAPE[1] - 0.5])


def learned(names: list[str], batches: int, seed: int, source: KnowledgeSource | None = None) -> tuple[Model, Amber]:
    config = ModelConfig(("kind", "species"), backbone=f"features:{DIM}", calibrate=False, settings={"adapt": False})
    model, rng = Model(config, source=source), torch.Generator().manual_seed(seed)
    for _ in range(batches):
        x = torch.randn(len(names), DIM, 1, 1, generator=rng)
        model.observe(x, [Label(name, 1) for name in names])
    learner = model.learner
    assert isinstance(learner, Amber)
    return model, learner


def test_each_model_weighs_as_much_as_it_has_seen() -> None:
    (here, mine), (there, theirs) = learned(["a", "b"], 3, 0), learned(["b", "c"], 9, 1)
    width = len(mine.penalties._start)
    mine.penalties.log = {1: torch.zeros(width)}
    theirs.penalties.log = {1: torch.full((width,), math.log(16.0))}
    merge(here, there)
    assert mine.penalties(1).tolist() == pytest.approx([8.0] * DIM)  # 16 ** (18 / 24)


def test_the_window_goes_on_after_the_samples_of_the_other() -> None:
    (here, mine), (there, theirs) = learned(["a", "b"], 2, 0), learned(["b", "c"], 3, 1)
    mine.window.advantage, mine.window.checked, mine.window.right = 1.5, 7, 3
    theirs.window.advantage, theirs.window.checked, theirs.window.right = 2.0, 5, 4
    keys = mine.window.keys.tolist()
    merge(here, there)
    names = [here.taxonomy.labels[node].name for node in mine.window.recent.tolist()]
    assert names == ["b", "c"] * 3 + ["a", "b"] * 2
    assert mine.window.keys.tolist()[-4:] == keys
    assert mine.window.seen == 10
    assert (mine.window.checked, mine.window.right) == (12, 7)
    assert mine.window.advantage == pytest.approx(3.5)


def test_doubted_links_are_those_of_both() -> None:
    (here, mine), (there, theirs) = learned(["a", "b"], 2, 0), learned(["c", "b"], 2, 1)
    for model, pairs in ((here, {"a": "X"}), (there, {"c": "Y", "b": "X"})):
        tree = model.taxonomy
        links = {}
        for child, parent in pairs.items():
            tree.link(tree.id(Label(child, 1)), tree.add(Label(parent, 0)))
            links[tree.id(Label(child, 1))] = tree.id(Label(parent, 0))
        model.learner.tree.doubt(links)  # type: ignore[union-attr]
    mine._refit = lambda: None  # type: ignore[method-assign]
    merge(here, there)
    labels = here.taxonomy.labels
    doubted = {(labels[node].name, labels[parent].name) for node, parent in mine.tree.doubted.items()}
    assert doubted == {("a", "X"), ("c", "Y"), ("b", "X")}
    assert theirs.tree.doubted  # the other keeps its own


def test_questions_that_wait_are_asked_at_the_same_distance() -> None:
    (here, _), (there, _) = learned(["a"], 10, 0, Silent()), learned(["a", "c"], 3, 1, Silent())
    waiting = dict(there.curator.asker.waiting)
    own = here.curator.asker.waiting[here.taxonomy.id(Label("a", 1))]
    node = there.taxonomy.id(Label("c", 1))
    merge(here, there)
    first, due = waiting[node]
    assert here.curator.asker.waiting[here.taxonomy.id(Label("c", 1))] == (first + 7, due + 7)
    assert here.curator.asker.waiting[here.taxonomy.id(Label("a", 1))] == own
