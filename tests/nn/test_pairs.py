from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from dhocl.core.rng import Rng
from dhocl.nn.heads.pairs import Pairs, all_pairs
from tests.helpers.trees import balanced_tree

seeds = st.integers(0, 1000)


@given(st.lists(st.integers(-1, 4), min_size=1, max_size=20), seeds)
def test_pairs_are_all_classes_with_an_ancestor_and_strangers_have_another(ancestors: list[int], seed: int) -> None:
    a = torch.tensor(ancestors)
    pairs = Pairs.of(a)
    known = [column for column, ancestor in enumerate(ancestors) if ancestor != -1]
    if len({ancestors[column] for column in known}) < 2:
        assert len(pairs.descendant) == 0
        return
    assert sorted(pairs.descendant.tolist()) == known
    assert torch.equal(pairs.ancestor, a[pairs.descendant])
    strangers = a[pairs.strangers(torch.arange(len(known)), Rng(seed, "prototypes"))]
    assert (strangers != pairs.ancestor).all()
    assert (strangers != -1).all()


@given(st.lists(st.integers(-1, 4), min_size=1, max_size=20), seeds)
def test_with_siblings_any_other_anchored_class_is_a_stranger(ancestors: list[int], seed: int) -> None:
    known = [column for column, ancestor in enumerate(ancestors) if ancestor != -1]
    pairs = Pairs.of(torch.tensor(ancestors), siblings=True)
    assert sorted(pairs.descendant.tolist()) == (known if len(known) > 1 else [])
    rng, drawn = Rng(seed, "prototypes"), set()
    for _ in range(200):
        strangers = pairs.strangers(torch.arange(len(pairs.descendant)), rng)
        assert (strangers != pairs.descendant).all()
        drawn |= set(strangers.tolist())
    assert drawn == set(pairs.descendant.tolist())


def test_strangers_are_uniform() -> None:
    a, rng = torch.tensor([0, 1, 0, 2, 2, 1, 0]), Rng(0, "prototypes")
    pairs, drawn = Pairs.of(a), torch.zeros(7)
    for _ in range(4000):
        drawn[pairs.strangers(torch.tensor([0]), rng)[0]] += 1
    assert drawn[a == 0].sum() == 0
    assert chisquare(drawn[a != 0]).pvalue > 1e-3


@pytest.mark.parametrize("siblings", [False, True])
def test_all_pairs_are_those_of_every_two_levels(siblings: bool) -> None:
    tree = balanced_tree(2, 2, 3)  # 2, 4 and 12 classes; columns are counted through all levels
    nodes = [node for level in tree.levels for node in tree.nodes(level).tolist()]
    pairs = all_pairs(tree, siblings) if siblings else all_pairs(tree)
    found = {(nodes[a], nodes[d]) for a, d in zip(pairs.ancestor.tolist(), pairs.descendant.tolist(), strict=True)}
    assert found == {(above, node) for node in nodes for above in tree.lineage(node) if above != node}
    assert len(pairs.descendant) == len(found) == 4 + 12 + 12
    rng, every = Rng(0, "prototypes"), torch.arange(len(found))
    drawn: list[set[int]] = [set() for _ in found]
    for _ in range(200):
        for place, column in enumerate(pairs.strangers(every, rng).tolist()):
            drawn[place].add(nodes[column])
    for place, strangers in enumerate(drawn):
        above, node = nodes[pairs.ancestor[place]], nodes[pairs.descendant[place]]
        level = tree.labels[node].level
        allowed = {other for other in tree.nodes(level).tolist() if siblings or above not in tree.lineage(other)}
        assert strangers == allowed - {node}
