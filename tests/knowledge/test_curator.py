from __future__ import annotations

import json
import math
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.knowledge import Corrupted, Curator, Oracle
from tests.helpers.trees import balanced_tree

TRUE = balanced_tree(3, 3, 3)


def induced(tree: Taxonomy, known: list[Label]) -> dict[Label, Label]:
    """The definition: the parent of a known class is its nearest known ancestor."""
    parents = {}
    for label in known:
        for ancestor in tree.lineage(tree.id(label))[1:]:
            if tree.labels[ancestor] in known:
                parents[label] = tree.labels[ancestor]
                break
    return parents


def links(tree: Taxonomy) -> dict[Label, Label]:
    return {tree.labels[n]: tree.labels[tree.parent(n)] for n in range(len(tree)) if tree.parent(n) != -1}


@given(st.permutations(TRUE.labels), st.integers(0, 4), st.integers(1, 5))
def test_once_answers_have_come_the_tree_is_the_induced_one(order: list[Label], delay: int, batch: int) -> None:
    curator = Curator(Oracle(TRUE), delay)
    for start in range(0, len(order), batch):
        curator.observe(order[start : start + batch])
    for _ in range(delay):
        curator.observe([order[0]])
    assert links(curator.taxonomy) == induced(TRUE, order)


@given(st.lists(st.sampled_from(TRUE.labels), min_size=1, max_size=30), st.integers(0, 4))
def test_links_are_usable_exactly_delay_batches_later(stream: list[Label], delay: int) -> None:
    curator = Curator(Oracle(TRUE), delay)
    for step, label in enumerate(stream):
        curator.observe([label])
        answered = stream[: max(0, step + 1 - delay)]
        # Whatever is linked by now was asked about, or is below something that was asked about, long enough ago.
        for child, parent in links(curator.taxonomy).items():
            assert child in answered or parent in answered
        assert len(links(curator.taxonomy)) >= len(induced(TRUE, answered))


def test_infinite_delay_never_asks() -> None:
    class Refuses:
        def query(self, label: Label, known: Collection[Label]) -> list[tuple[Label, Label]]:
            raise AssertionError("asked")

    curator = Curator(Refuses(), math.inf)
    curator.observe(TRUE.labels)
    assert links(curator.taxonomy) == {}


def test_oracle_tells_nothing_of_unseen_classes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        known = [TRUE.labels[i] for i in rng.choice(len(TRUE), 12, replace=False)]
        for child, parent in Oracle(TRUE).query(known[0], known):
            assert child in known
            assert parent in known


def answers(source: Corrupted) -> dict[Label, Label]:
    return {label: parent for label in TRUE for child, parent in source.query(label, TRUE) if child == label}


def test_vacant_and_noise_have_the_asked_shares() -> None:
    tree = balanced_tree(20, 20, 5)
    truth = induced(tree, tree.labels)
    source = Corrupted(Oracle(tree), vacant=0.2, noise=0.3, seed=1)
    told = {label: parent for label in tree for child, parent in source.query(label, tree) if child == label}
    wrong = sum(told[label] != truth[label] for label in told)
    n = len(truth)
    assert abs((n - len(told)) / n - 0.2) < 4 * math.sqrt(0.16 / n)
    assert abs(wrong / n - 0.3) < 4 * math.sqrt(0.21 / n)
    assert all(parent.level == truth[label].level for label, parent in told.items())


def test_the_fate_of_a_link_does_not_depend_on_when_it_is_asked() -> None:
    source = Corrupted(Oracle(TRUE), vacant=0.3, noise=0.4, seed=2)
    first = answers(source)
    assert answers(source) == first
    assert answers(Corrupted(Oracle(TRUE), vacant=0.3, noise=0.4, seed=2)) == first
    assert answers(Corrupted(Oracle(TRUE), vacant=0.3, noise=0.4, seed=3)) != first


@given(st.permutations(TRUE.labels), st.integers(0, 4), st.integers(1, 5))
def test_noise_never_gives_the_true_parent(order: list[Label], delay: int, batch: int) -> None:
    """Also while only one class of the parent's level is known: then there is no answer yet."""
    curator = Curator(Corrupted(Oracle(TRUE), noise=1.0), delay)
    for start in range(0, len(order), batch):
        curator.observe(order[start : start + batch])
        ancestors = {label: {TRUE.labels[n] for n in TRUE.lineage(TRUE.id(label))} for label in curator.taxonomy}
        assert not any(parent in ancestors[child] for child, parent in links(curator.taxonomy).items())
    for _ in range(delay):
        curator.observe([order[0]])
    told, truth = links(curator.taxonomy), induced(TRUE, order)
    assert {child: parent.level for child, parent in told.items()} == {c: p.level for c, p in truth.items()}


def test_a_wrong_link_comes_with_the_first_class_it_can_name() -> None:
    one, two, below = Label("0", 0), Label("1", 0), Label("0.0", 1)
    source = Corrupted(Oracle(TRUE), noise=1.0)
    assert source.query(one, [one]) == []
    assert source.query(below, [one, below]) == []
    assert source.query(below, [one, below]) == [], "asked again, still nothing"
    assert source.query(two, [one, below, two]) == [(below, two)]
    assert source.query(below, [one, below, two]) == [(below, two)]
    assert source.query(two, [one, below, two]) == [], "told once"


def test_state_survives_a_restart() -> None:
    rng = np.random.default_rng(3)
    stream = [TRUE.labels[i] for i in rng.integers(len(TRUE), size=60)]
    whole = Curator(Corrupted(Oracle(TRUE), 0.2, 0.5), delay=3)
    for label in stream:
        whole.observe([label])
    owed = 0
    for stop in range(len(stream)):
        first = Curator(Corrupted(Oracle(TRUE), 0.2, 0.5), delay=3)
        for label in stream[:stop]:
            first.observe([label])
        second = Curator(Corrupted(Oracle(TRUE), 0.2, 0.5), delay=3)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        owed += bool(second.asker.source.owed)
        for label in stream[stop:]:
            second.observe([label])
        assert second.taxonomy.dumps() == whole.taxonomy.dumps()
    assert owed, "some restart falls between a question and its wrong answer"


@given(
    st.lists(st.sampled_from(TRUE.labels), min_size=1, max_size=40),
    st.integers(0, 4),
    st.integers(1, 4),
    st.sampled_from([(0.0, 0.0), (0.4, 0.3), (0.9, 0.0), (0.0, 0.9)]),
)
def test_the_truth_can_be_asked_again_without_any_change(
    stream: list[Label], delay: int, batch: int, shares: tuple[float, float]
) -> None:
    once, often = (Curator(Corrupted(Oracle(TRUE), *shares), delay, retry=again) for again in (False, True))
    for start in range(0, len(stream), batch):
        for curator in (once, often):
            curator.observe(stream[start : start + batch])
        assert often.taxonomy.dumps() == once.taxonomy.dumps()


def test_bad_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="shares"):
        Corrupted(Oracle(TRUE), vacant=0.7, noise=0.7)
