"""AMBER while the tree changes and samples wait: against the tree that results, and a slow recomputation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dhocl.checks import assert_valid
from dhocl.core.decode import merge_synonyms
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.methods.amber import Amber, AmberSettings
from dhocl.nn.learner import Batch
from tests.helpers.slow_amber import Slow
from tests.helpers.trees import apply_one, balanced_tree
from tests.helpers.vectors import vector_setup

PLAIN = AmberSettings(completion="never", calibration=0, doubt=False, adapt=False)
COMPLETING = dataclasses.replace(PLAIN, completion="always", refresh=8)
D = 6


def images(n: int, seed: int) -> Tensor:
    """(n, D, 1, 1) vectors in place of images."""
    return torch.randn(n, D, 1, 1, generator=torch.Generator().manual_seed(seed))


def learned(nodes: list[int], tree: Taxonomy, settings: AmberSettings = PLAIN) -> Amber:
    learner, x = Amber(vector_setup(D), settings), images(len(nodes), 3)
    for start in range(0, len(nodes), 8):
        some = slice(start, start + 8)
        learner.learn(Batch(x[some], torch.tensor(nodes[some])), tree)
    return learner


NOTHING = images(0, 0), torch.zeros(0, dtype=torch.long)


def follow(learner: Amber, tree: Taxonomy) -> None:
    learner.learn(Batch(*NOTHING), tree)


def assert_predicts_like(learner: Amber, other: Amber) -> None:
    x = images(20, 4)
    for level, p in other.predict(x).items():
        torch.testing.assert_close(learner.predict(x)[level], p, rtol=1e-3, atol=1e-5)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 6), min_size=8, max_size=24), st.integers(3, 6), st.integers(3, 6))
def test_synonyms_are_as_if_they_had_been_one_class_from_the_start(nodes: list[int], synonym: int, into: int) -> None:
    late, early = balanced_tree(1, 2, 2), balanced_tree(1, 2, 2)
    learner = learned(nodes, late)
    late.merge(synonym, into)
    early.merge(synonym, into)
    again = learned([early.accepted(node) for node in nodes], early)
    follow(learner, late)
    assert_predicts_like(learner, again)


@pytest.mark.parametrize("waiting", [4, 1000])
@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 5), min_size=8, max_size=24), st.integers(2, 5))
def test_so_are_soft_targets_of_an_only_child(waiting: int, nodes: list[int], synonym: int) -> None:
    """All that is guessed below a parent goes to one class, whether its two children were merged before or after."""
    completing = dataclasses.replace(COMPLETING, window=waiting)
    late, early = balanced_tree(2, 2), balanced_tree(2, 2)
    learner = learned(nodes, late, completing)
    late.merge(synonym, synonym ^ 1)  # 2 and 3 are siblings, 4 and 5
    early.merge(synonym, synonym ^ 1)
    again = learned([early.accepted(node) for node in nodes], early, completing)
    follow(learner, late)
    assert_predicts_like(learner, again)


def test_what_was_guessed_to_be_a_class_does_not_count_below_another_parent_while_it_waits() -> None:
    """Once the sample has left the window, it does: a sample that has left is not completed again."""
    nodes = [0, 2, 3, 0, 2, 3, 0, 2]
    found = {}
    for waiting in (1, 1000):
        tree = balanced_tree(2, 2)
        learner = learned(nodes, tree, dataclasses.replace(COMPLETING, window=waiting))
        tree.link(2, 1)
        follow(learner, tree)
        found[waiting] = learner._system(1, learner.tree.known).N[0]
    assert found[1000] == nodes.count(2)
    assert found[1] > nodes.count(2) + 0.5


CHANGES = st.sampled_from(["add", "link", "link", "unlink", "rename", "merge", "relabel", "split"])
HISTORIES = st.lists(st.tuples(CHANGES, st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=20)


class Followed:
    """A learner, its slow recomputation, and one that also fits and doubts, while classes and labels change."""

    def __init__(self, waiting: int) -> None:
        chosen = dataclasses.replace(COMPLETING, window=waiting, refresh=4, recency=5.0)
        usual = dataclasses.replace(chosen, calibration=512, doubt=True, adapt=True)
        self.learner, self.usual = (Amber(vector_setup(D), settings) for settings in (chosen, usual))
        self.slow = Slow(self.learner)
        self.tree = balanced_tree(2, 2)
        self.x = images(0, 0)  # of all samples

    def learn(self, x: Tensor, y: Tensor) -> None:
        for learner in (self.learner, self.usual):
            learner.learn(Batch(x, y), self.tree)
        self.slow.learn(x, y, self.tree)
        self.x = torch.cat([self.x, x])

    def change(self, kind: str, a: int, b: int) -> None:
        if kind in ("relabel", "split"):
            self.relabel(a % len(self.x), b % len(self.tree) if kind == "relabel" else self.part(a % len(self.x), b))
        else:
            apply_one(self.tree, kind, a, b)

    def part(self, i: int, number: int) -> int:
        """One of the classes into which that of sample i is split."""
        name, level = self.tree.labels[self.slow.samples[i].node]
        return self.tree.add(Label(f"{name}, part {number % 2}", level))

    def relabel(self, i: int, node: int) -> None:
        x, old = self.x[i : i + 1], torch.tensor([self.slow.samples[i].node])
        for learner in (self.learner, self.usual):
            learner.forget(Batch(x, old), self.tree)
        self.slow.forget(i)
        self.x = torch.cat([self.x[:i], self.x[i + 1 :]])
        self.learn(x, self.tree.resolve(torch.tensor([node])))

    def check(self) -> None:
        self.learn(*NOTHING)
        for level in self.tree.levels:
            expected = self.slow.system(self.tree, level, self.slow.soft)
            for found, exact in zip(self.learner._system(level, self.learner.tree.known), expected, strict=True):
                torch.testing.assert_close(found, exact.float(), rtol=1e-3, atol=1e-3)
        assert self.learner.window.advantage == pytest.approx(self.slow.advantage, rel=1e-3, abs=1e-2)
        assert_valid(merge_synonyms(self.usual.predict(images(7, 99)), self.tree), self.tree, 7)


@pytest.mark.parametrize("waiting", [6, 1000])
@settings(deadline=None, max_examples=25)
@given(HISTORIES)
def test_sums_are_those_of_a_slow_recomputation(waiting: int, history: list[tuple[str, int, int]]) -> None:
    """Classes are renamed, merged, moved, linked late and split by relabelling their images, some of which wait.

    Levels appear late and between known ones; trees are uneven.
    """
    both, rng = Followed(waiting), np.random.default_rng(0)
    for step, change in enumerate([("add", 1, 4), *history]):
        y = torch.from_numpy(rng.integers(0, len(both.tree), 3))
        both.learn(images(3, step), both.tree.resolve(y))
        both.change(*change)
        if step % 5 == 0:
            both.check()
    both.check()
