from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from dhocl.checks import setup, stream
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.methods.cbrs import CBRS, ClassBalanced
from dhocl.methods.er import ReplaySettings
from dhocl.nn.augment import augment
from tests.helpers.reference_replay import (
    Item,
    arriving,
    assert_holds,
    assert_step,
    draws,
    haf,
    late_links,
    learn,
    stored,
)


def filled(labels: np.ndarray, capacity: int, seed: int, batch: int = 7) -> ClassBalanced:
    memory = ClassBalanced(capacity, Rng(seed, "memory"))
    for start in range(0, len(labels), batch):
        part = torch.from_numpy(labels[start : start + batch])
        memory.insert(y=part, i=torch.arange(start, start + len(part)))
    return memory


def counts(memory: ClassBalanced) -> Counter[int]:
    return Counter(memory.columns["y"][: memory.size].tolist())


@pytest.mark.parametrize("order", ["shuffled", "sorted", "reversed"])
def test_small_classes_are_kept_whole_and_the_rest_is_shared(order: str) -> None:
    labels = np.repeat(np.arange(4), [1000, 400, 30, 5])
    labels = {
        "shuffled": np.random.default_rng(0).permutation(labels),
        "sorted": labels,
        "reversed": labels[::-1].copy(),
    }[order]
    kept = counts(filled(labels, 100, seed=0))
    assert kept[3] == 5
    assert kept[2] >= 29
    assert abs(kept[0] - kept[1]) <= 2
    assert sum(kept.values()) == 100


@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), st.integers(0, 12), st.integers(0, 50))
def test_books_agree_with_what_is_stored(labels: list[int], capacity: int, seed: int) -> None:
    memory = filled(np.array(labels), capacity, seed)
    assert memory.size == min(capacity, len(labels))
    kept = memory.columns["y"][: memory.size].tolist()
    for name, slots in memory._slots.items():
        assert sorted(slots) == [slot for slot, label in enumerate(kept) if label == name]
    came = memory.columns["i"][: memory.size].tolist()
    assert [labels[i] for i in came] == kept, "items are pairs that really occurred"
    assert len(set(came)) == len(came)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=60),
    st.dictionaries(st.integers(1, 59), st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=5),
    st.integers(0, 12),
    st.integers(0, 50),
)
def test_books_agree_after_classes_were_merged(
    labels: list[int], merges: dict[int, tuple[int, int]], capacity: int, seed: int
) -> None:
    tree, memory = Taxonomy(), ClassBalanced(capacity, Rng(seed, "memory"))
    for name in range(6):
        tree.add(Label(str(name), 0))
    for time, label in enumerate(labels):
        if time in merges:
            tree.merge(*merges[time])
        memory.follow(tree)
        memory.insert(y=torch.tensor([tree.accepted(label)]))
        kept, came = memory.nodes.tolist(), Counter(tree.accepted(label) for label in labels[: time + 1])
        assert memory._came == came
        assert memory._full <= came.keys()
        for name, slots in memory._slots.items():
            assert sorted(slots) == [slot for slot, label in enumerate(kept) if label == name]
        assert sum(map(len, memory._slots.values())) == len(kept)


def test_a_merged_class_that_was_full_makes_its_accepted_class_full() -> None:
    tree, memory = Taxonomy(), ClassBalanced(4, Rng(0, "memory"))
    for name in "abc":
        tree.add(Label(name, 0))
    memory.insert(y=torch.tensor([0, 0, 0, 1]))
    tree.merge(0, 2)
    memory.follow(tree)
    assert memory._full == {2}
    for _ in range(20):
        memory.insert(y=torch.tensor([2]))
    assert counts(memory) == {1: 1, 2: 3}, "it goes on as a reservoir of its own"


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 50))
def test_a_class_that_is_not_full_never_shrinks(labels: list[int], seed: int) -> None:
    memory = ClassBalanced(8, Rng(seed, "memory"))
    before: dict[int, int] = {}
    for label in labels:
        memory.insert(y=torch.tensor([label]))
        now = {name: len(slots) for name, slots in memory._slots.items()}
        assert all(now[name] >= count for name, count in before.items() if name not in memory._full)
        before = now


def test_inside_a_full_class_every_item_has_the_same_chance() -> None:
    kept = np.zeros(60)
    for seed in range(2000):
        memory = filled(np.zeros(60, dtype=np.int64), 10, seed)
        kept[memory.columns["i"][: memory.size]] += 1
    assert chisquare(kept).pvalue > 1e-3


def test_state_survives_a_restart() -> None:
    labels = np.random.default_rng(1).integers(0, 5, 100)
    whole = filled(labels, 20, seed=0)
    first = ClassBalanced(20, rng := Rng(0, "memory"))
    for start in range(0, 49, 7):
        first.insert(y=torch.from_numpy(labels[start : start + 7]), i=torch.arange(start, start + 7))
    second = ClassBalanced(20, again := Rng(3, "memory"))
    second.load_state_dict(first.state_dict())
    again.load_state_dict(rng.state_dict())
    for start in range(49, 100, 7):
        part = torch.from_numpy(labels[start : start + 7])
        second.insert(y=part, i=torch.arange(start, start + len(part)))
    assert torch.equal(second.columns["i"], whole.columns["i"])


def test_a_step_is_that_of_replay_from_this_memory() -> None:
    learner = CBRS(setup(buffer=10, replay_batch=4), ReplaySettings())
    rng, held, came, full = draws(), list[Item](), Counter[int](), set[int]()
    places: dict[int, list[int]] = {}  # class -> its slots, in the order of entry
    changed = set()
    history = learn(learner, stream(12), late_links())
    for seen, (batch, tree, (step,), stats) in zip(range(0, 96, 8), history, strict=True):
        slots = rng.choice(len(held), min(4, len(held)), replace=False, shuffle=False) if held else []
        loss = haf(step.before, augment(batch.x, rng, flip=True), batch.y.tolist(), tree)
        if len(slots):
            x, y = stored(held, slots)
            loss = loss + haf(step.before, augment(x, rng, flip=True), y, tree)
        assert_step(step, loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
        for item in arriving(batch, seen):
            came[item.y] += 1
            own = places.setdefault(item.y, [])
            most = max(map(len, places.values()))
            if len(held) < 10:
                own.append(len(held))
                held.append(item)
            elif item.y not in full:
                taken = sorted(slot for slots in places.values() if len(slots) == most for slot in slots)
                slot = taken[rng.integers(len(taken))]
                places[held[slot].y].remove(slot)
                own.append(slot)
                held[slot] = item
                changed.add("a largest class shrank")
            elif rng.random() < len(own) / came[item.y]:
                held[own[rng.integers(len(own))]] = item
                changed.add("a full class changed")
            if len(held) == 10:
                most = max(map(len, places.values()))
                full |= {name for name, slots in places.items() if len(slots) == most}
    assert len(changed) == 2
    assert_holds(learner, held)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.sets(st.integers(0, 9), max_size=6),
    st.lists(st.integers(0, 3), max_size=20),
    st.integers(1, 8),
)
def test_books_agree_after_items_were_removed(
    first: list[int], slots: set[int], then: list[int], capacity: int
) -> None:
    memory = filled(np.array(first), capacity, seed=0)
    held = memory.columns["i"][: memory.size].tolist()
    memory.remove(np.array([slot for slot in sorted(slots) if slot < memory.size], dtype=np.int64))
    assert memory.columns["i"][: memory.size].tolist() == [i for slot, i in enumerate(held) if slot not in slots]
    before = memory.size
    for place, label in enumerate(then):
        memory.insert(y=torch.tensor([label]), i=torch.tensor([len(first) + place]))
    assert memory.size == min(capacity, before + len(then)), "free slots are filled first"
    kept = memory.columns["y"][: memory.size].tolist()
    for name, own in memory._slots.items():
        assert sorted(own) == [slot for slot, label in enumerate(kept) if label == name]
    assert [(first + then)[i] for i in memory.columns["i"][: memory.size].tolist()] == kept
