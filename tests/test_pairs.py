from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from dhocl.heads.pairs import Pairs
from dhocl.rng import Rng

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
