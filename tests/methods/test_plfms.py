from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dhocl.checks import feed, pictures, setup, stream
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.methods.clib import Scored
from dhocl.methods.plfms import (
    PLFMS,
    PlfmsSettings,
    PseudoLabelled,
    Sightings,
    lineages,
    pseudo_labels,
    use_probability,
)
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch
from tests.helpers.reference_clib import ScoredByHand
from tests.helpers.reference_replay import arriving, assert_step, draws, haf, late_links, learn, stored
from tests.helpers.trees import apply, balanced_tree, changes

# -- pseudo-labels ---------------------------------------------------------------------------------------------


def guesses(tree: Taxonomy, n: int, seed: int) -> dict[int, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return {
        level: torch.from_numpy(rng.dirichlet(np.full(width, 0.3), n)).float() for level, width in tree.widths.items()
    }


def guessed_by_hand(p: dict[int, torch.Tensor], row: int, node: int, tree: Taxonomy, threshold: float) -> int:
    at = node
    for level in tree.levels:
        below = [v for v in tree.descendants(at) if tree.labels[v].level == level]
        if below:
            best = max(below, key=lambda v: float(p[level][row, tree.column(v)]))
            if p[level][row, tree.column(best)] >= threshold:
                at = best
    return -1 if at == node else at


@given(st.one_of(changes().map(apply), st.just(balanced_tree(2, 2, 2))), st.integers(0, 99), st.floats(0, 1))
def test_a_pseudo_label_is_the_finest_sure_node_below(tree: Taxonomy, seed: int, threshold: float) -> None:
    if not len(tree):
        return
    y = torch.from_numpy(np.random.default_rng(seed).integers(0, len(tree), 12))
    p = guesses(tree, 12, seed)
    found = pseudo_labels(p, y, tree, threshold).tolist()
    for row, node in enumerate(y.tolist()):
        assert found[row] == guessed_by_hand(p, row, node, tree, threshold)
        assert found[row] == -1 or found[row] in tree.descendants(node)
    assert set(pseudo_labels(p, y, tree, 1.01).tolist()) == {-1}


@given(changes())
def test_lineages_are_those_of_the_tree(history: list[tuple[str, int, int]]) -> None:
    tree = apply(history)
    for node, row in enumerate(lineages(tree).tolist()):
        assert [v for v in reversed(row) if v != -1] == tree.lineage(node)


def test_the_column_of_a_merged_class_is_a_guess_for_its_accepted_class() -> None:
    tree = balanced_tree(1, 3)
    tree.merge(3, 1)
    y = torch.tensor([0, 1])
    p = {0: torch.ones(2, 1), 1: torch.tensor([[0.1, 0.1, 0.8], [0.1, 0.1, 0.8]])}
    assert pseudo_labels(p, y, tree, 0.5).tolist() == [1, -1]


def three_levels() -> tuple[Taxonomy, int, int, int]:
    tree = balanced_tree(2, 2, 2)
    return tree, *(tree.id(Label(name, level)) for level, name in enumerate(["0", "0.1", "0.1.0"]))


def counted(memory: Scored, y: list[int], pseudo: list[int]) -> list[set[int]]:
    rows = memory.classes({"y": torch.tensor(y), "pseudo": torch.tensor(pseudo)}).tolist()
    assert [row[0] for row in rows] == y
    assert all(len([v for v in row if v != -1]) == len(set(row) - {-1}) for row in rows), "each class once"
    return [set(row) - {-1} for row in rows]


def test_an_item_counts_for_the_path_from_its_label_down_to_the_guess() -> None:
    memory = PseudoLabelled(4, Rng(0, "memory"))
    memory.tree, root, middle, leaf = three_levels()
    assert counted(memory, [root, root, middle, leaf], [leaf, -1, leaf, -1]) == [
        {root, middle, leaf},
        {root},
        {middle, leaf},
        {leaf},
    ]
    memory.tree.unlink(middle)
    assert counted(memory, [root, middle], [leaf, leaf]) == [{root}, {middle, leaf}]


def test_guesses_decide_which_class_is_the_largest() -> None:
    tree, root, middle, leaf = three_levels()
    other = tree.id(Label("1", 0))
    held = torch.tensor([root, root, leaf, leaf, other, other, other])
    memory = PseudoLabelled(7, Rng(0, "memory"))
    memory.tree = tree
    memory.insert(x=torch.arange(7), y=held)
    memory.columns["score"][:] = torch.tensor([0.6, 0.1, 0.5, 0.4, 0.9, 0.3, 0.2])
    memory.columns["pseudo"][:2] = leaf  # so four of seven are leaves, and without guesses `other` is the largest
    memory.insert(x=torch.tensor([99]), y=torch.tensor([middle]))
    assert memory.columns["x"].tolist() == [0, 99, 2, 3, 4, 5, 6]


@settings(max_examples=20)
@given(st.lists(st.integers(0, 13), min_size=20, max_size=40), st.integers(1, 9), st.integers(0, 99))
def test_without_guesses_the_memory_is_that_of_clib(labels: list[int], capacity: int, seed: int) -> None:
    tree = balanced_tree(2, 2, 2)
    own, clib = (policy(capacity, Rng(seed, "memory")) for policy in (PseudoLabelled, Scored))
    scores = np.random.default_rng(seed)
    own.tree = clib.tree = tree
    for number, label in enumerate(labels):
        for memory in (own, clib):
            memory.insert(x=torch.tensor([number]), y=torch.tensor([label]))
        own.columns["score"][: own.size] = torch.from_numpy(scores.random(own.size)).float()
        clib.columns["score"].copy_(own.columns["score"])
        assert torch.equal(own.columns["x"][: own.size], clib.columns["x"][: clib.size])


def test_looks_at_the_memory_fill_in_the_guesses() -> None:
    for threshold, some in [(0.0, True), (1.01, False)]:
        learner = PLFMS(setup(), PlfmsSettings(threshold=threshold, period=1))
        tree = feed(learner, stream(6)).taxonomy
        pseudo = learner.memory.columns["pseudo"].tolist()
        assert any(node != -1 for node in pseudo) == some
        for node, guess in zip(learner.memory.columns["y"].tolist(), pseudo, strict=True):
            assert (guess != -1) == (some and bool(tree.children(node)))


# -- flexible sampling -----------------------------------------------------------------------------------------


@given(st.integers(1, 10_000), st.integers(1, 500))
def test_use_rises_with_elapsed_samples_from_zero_to_one(length: int, classes: int) -> None:
    p = [use_probability(elapsed, length, classes) for elapsed in range(0, 2 * length // classes + 2)]
    assert p[0] == 0
    assert all(a <= b for a, b in pairwise(p))
    assert all((value == 1) == (elapsed * classes >= length) for elapsed, value in enumerate(p))
    assert use_probability(length // (2 * classes), length, classes) <= 0.5


@given(st.lists(st.integers(0, 9), min_size=20, max_size=60), st.integers(1, 8))
def test_use_is_by_time_since_first_sight_and_knows_nothing_of_what_comes(labels: list[int], b: int) -> None:
    whole = Sightings().meet(torch.tensor(labels))
    sightings, parts = Sightings(), []
    for start in range(0, len(labels), b):
        parts.append(sightings.meet(torch.tensor(labels[start : start + b])))
        again = Sightings()
        again.load_state_dict(sightings.state_dict())
        sightings = again
    assert np.array_equal(np.concatenate(parts), whole)
    for now, label in enumerate(labels):
        expected = min(1.0, (now - labels.index(label)) * len(set(labels[: now + 1])) / max(1, 2 * now))
        assert whole[now] == pytest.approx(expected)
        assert (whole[now] == 0) == (labels.index(label) == now)


def batch_of(nodes: list[int], rng: np.random.Generator) -> Batch:
    return Batch(pictures([node % 4 for node in nodes], rng), torch.tensor(nodes))


def test_a_batch_of_classes_never_met_is_replaced_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, rng = balanced_tree(24), np.random.default_rng(0)
    learner, sizes, taken = PLFMS(setup(buffer=20), PlfmsSettings()), [], []
    loss, take = learner.loss, learner.memory.take
    monkeypatch.setattr(learner, "loss", lambda bs, t: (sizes.append(sum(len(b.y) for b in bs)), loss(bs, t))[1])
    monkeypatch.setattr(learner.memory, "take", lambda n: (taken.append(n), take(n))[1])
    for start in (0, 8, 16):
        learner.learn(batch_of(list(range(start, start + 8)), rng), tree)
    assert taken == [4, 12, 12]  # the first batch of all has nothing to be replaced by
    assert sizes == [12, 12, 12]


def test_batches_have_one_size_and_hold_the_labels_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, trained = PLFMS(setup(buffer=20), PlfmsSettings(threshold=0.0, period=1)), []
    loss = learner.loss
    monkeypatch.setattr(learner, "loss", lambda bs, t: (trained.append(bs), loss(bs, t))[1])
    curator, came = None, set()
    for x, labels in stream(10):
        curator = feed(learner, [(x, labels)], curator)
        came |= {(image.numpy().tobytes(), label) for image, label in zip(x, labels, strict=True)}
        ((batch,),) = trained
        trained.clear()
        assert len(batch.y) == 12
        used = {(i.numpy().tobytes(), curator.taxonomy.labels[y]) for i, y in zip(batch.x, batch.y, strict=True)}
        assert used <= came
    assert (learner.memory.columns["pseudo"] != -1).any(), "there were guesses that could have been trained on"


def test_a_class_met_long_ago_is_used_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, rng = balanced_tree(4), np.random.default_rng(0)
    learner, taken = PLFMS(setup(buffer=20), PlfmsSettings()), []
    take = learner.memory.take
    monkeypatch.setattr(learner.memory, "take", lambda n: (taken.append(n), take(n))[1])
    for _ in range(6):
        learner.learn(batch_of([0, 1, 2, 3] * 2, rng), tree)
    assert taken[-1] == 4


def test_a_merged_class_was_met_when_the_first_of_its_names_was() -> None:
    sightings, tree = Sightings(), balanced_tree(4)
    sightings.meet(torch.tensor([2, 0, 1, 3, 0]))
    tree.merge(0, 3)
    tree.merge(1, 2)
    sightings.follow(tree)
    assert sightings.state_dict() == {"seen": 5, "first": [[2, 0], [3, 1]]}


# -- the whole step --------------------------------------------------------------------------------------------


def test_a_step_mixes_the_stream_with_memory_and_balances_by_guesses() -> None:
    options = PlfmsSettings(threshold=0.35, period=2)
    learner = PLFMS(setup(buffer=30, replay_batch=4), options)
    memory, firsts, seen, used, guesses = ScoredByHand(30, draws()), dict[int, int](), 0, [], set()
    curator = late_links()
    for arrived in stream(20):
        ((batch, tree, (step,), stats),) = learn(learner, [arrived], curator)
        memory.insert(arriving(batch, seen), tree)
        coins, rows = memory.rng.random(8), []
        for row, node in enumerate(batch.y.tolist()):
            firsts.setdefault(node, seen)
            p = (seen - firsts[node]) * len(firsts) / max(1, 2 * seen)
            if coins[row] < p or len(used) == 0:
                rows.append(row)
            seen += 1
        used.append(len(rows))
        x, y = stored(memory.items, memory.take(12 - len(rows)))
        views = augment(torch.cat([batch.x[rows], x]), memory.rng, flip=True)
        loss = haf(step.before, views, batch.y[rows].tolist() + y, tree)
        assert_step(step, loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
        if memory.steps == 2:
            memory.look(step.after, tree, options.decay, options.threshold)
            guesses |= {kept.pseudo for kept in memory.held if tree.children(kept.item.y)}
        memory.assert_like(learner)
    assert used[0] == 8
    assert len(set(used)) > 3, "the share of the stream varied"
    assert len(guesses) > 2, "some guesses were sure and some were not"
    assert -1 in guesses
