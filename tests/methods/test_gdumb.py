from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.checks import exam, feed, setup, stream, true_tree
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.knowledge import Curator, Oracle
from dhocl.methods.gdumb import GDumb, GdumbSettings, Greedy
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch
from dhocl.nn.network import Network
from tests.helpers.reference_others import assert_same_state
from tests.helpers.reference_replay import Item, arriving, assert_holds, draws, haf, late_links, stored

# -- the memory ------------------------------------------------------------------------------------------------


def greedy(held: list[Item], items: list[Item], capacity: int, rng: Rng) -> None:
    """The policy, one item after the other."""
    for item in items:
        if len(held) < capacity:
            held.append(item)
            continue
        sizes = Counter(other.y for other in held)
        most = max(sizes.values(), default=0)
        if sizes[item.y] < most:
            candidates = [slot for slot, other in enumerate(held) if sizes[other.y] == most]
            held[candidates[rng.integers(len(candidates))]] = item


def filled(labels: list[int], capacity: int, seed: int, batch: int) -> Greedy:
    memory = Greedy(capacity, Rng(seed, "memory"))
    for start in range(0, len(labels), batch):
        memory.insert(y=torch.tensor(labels[start : start + batch]))
    return memory


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=90),
    st.integers(0, 15),
    st.integers(0, 50),
    st.integers(1, 40),
)
def test_the_memory_equals_a_slow_reference_and_is_balanced(
    labels: list[int], capacity: int, seed: int, batch: int
) -> None:
    memory, held = filled(labels, capacity, seed, batch), list[Item]()
    greedy(held, [Item(torch.empty(0), y, i) for i, y in enumerate(labels)], capacity, Rng(seed, "memory"))
    assert memory.nodes.tolist() == [item.y for item in held]
    assert memory.columns["arrived"][: memory.size].tolist() == [item.arrived for item in held]
    assert memory.size == min(capacity, len(labels))
    came, kept = Counter(labels), Counter(memory.nodes.tolist())
    if capacity:
        assert all(kept[name] == came[name] or kept[name] >= max(kept.values()) - 1 for name in came)


def test_with_enough_supply_classes_differ_by_one_in_any_order() -> None:
    labels = [name for name in range(7) for _ in range(50)]
    for order in (labels, labels[::-1], labels[::7] + labels):
        kept = Counter(filled(order, 45, seed=0, batch=8).nodes.tolist())
        assert sorted(kept.values()) == [6] * 4 + [7] * 3


def test_each_item_of_the_largest_classes_can_be_replaced_but_no_other() -> None:
    gone = Counter[int]()
    for seed in range(400):
        memory = filled([0, 0, 1, 2, 2], 5, seed, batch=5)
        memory.insert(y=torch.tensor([1]))
        (slot,) = (i for i, arrived in enumerate(memory.columns["arrived"].tolist()) if arrived == 5)
        gone[slot] += 1
    assert set(gone) == {0, 1, 3, 4}
    assert min(gone.values()) > 60  # 100 expected


def test_merged_classes_are_counted_as_one() -> None:
    tree, memory = Taxonomy(), Greedy(6, Rng(0, "memory"))
    for name in "abc":
        tree.add(Label(name, 0))
    memory.insert(y=torch.tensor([0, 0, 1, 1, 2, 2]))
    tree.merge(0, 1)
    memory.follow(tree)
    memory.insert(y=torch.tensor([2]))
    assert Counter(memory.nodes.tolist()) == {1: 3, 2: 3}


# -- a round of training ---------------------------------------------------------------------------------------


def fresh(learner: GDumb, tree: Taxonomy) -> Network:
    """A network as at the start: pretrained weights, heads of the seed for the classes of this tree."""
    net = Network(setup(), learner.settings)
    net.grow(tree)
    return net


@pytest.mark.parametrize("every", [24, 20])
def test_rounds_train_a_new_network_on_the_memory_alone(every: int) -> None:
    learner = GDumb(setup(buffer=20, replay_batch=4), GdumbSettings(every=every, epochs=3))
    rng, held, curator, rounds = draws(), list[Item](), late_links(), 0
    reference = Network(setup(), learner.settings)
    for seen, (x, labels) in zip(range(0, 80, 8), stream(10), strict=True):
        batch = Batch(x, curator.observe(labels))
        tree = curator.taxonomy
        assert learner.learn(batch, tree) == {}
        greedy(held, arriving(batch, seen), 20, rng)
        reference.grow(tree)
        if (seen + 8) // every > seen // every:
            rounds += 1
            reference = fresh(learner, tree)
            for _ in range(3):
                order = rng.permutation(len(held))
                for start in range(0, len(held), 12):
                    images, y = stored(held, order[start : start + 12])
                    reference.step(haf(reference, augment(images, rng, flip=True), y, tree))
        assert_holds(learner, held)
        assert learner.rng.bit_generator.state == rng.bit_generator.state, "nothing else was drawn"
        assert_same_state(learner.net.state_dict(), reference.state_dict())
        assert_same_state(learner.net.optimizer.state_dict(), reference.optimizer.state_dict())
    assert rounds == 80 // every


def test_each_round_starts_with_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, starts = GDumb(setup(), GdumbSettings(every=16)), []
    monkeypatch.setattr(learner, "epoch", lambda b, tree: starts.append((b, copy.deepcopy(learner.net.state_dict()))))
    curator = feed(learner, stream(10))
    assert [b for b, _ in starts] == [12] * 10 * 5, "ten epochs each"
    assert torch.equal(*(start["heads"]["1"]["weight"]["rows"] for _, start in starts[-2:]))
    wanted = setup().backbone.state_dict()
    for _, start in starts:
        assert all(torch.equal(start["f"][name], value) for name, value in wanted.items())
    heads = fresh(learner, curator.taxonomy).state_dict()["heads"]
    assert_same_state(starts[-1][1]["heads"], heads)


@pytest.mark.parametrize(("samples", "every", "rounds"), [(80, 0, 10), (None, 0, 0), (80, 16, 5), (80, 2, 10)])
def test_a_stream_has_ten_rounds_and_a_batch_one_at_most(samples: int | None, every: int, rounds: int) -> None:
    learner, passes = GDumb(setup()._replace(samples=samples), GdumbSettings(every=every, epochs=1)), []
    learner.epoch = lambda b, taxonomy: passes.append(b)  # type: ignore[method-assign]
    feed(learner, stream(10))
    assert len(passes) == rounds


def test_nothing_is_trained_between_rounds_and_new_classes_have_columns() -> None:
    learner, (x, _) = GDumb(setup(), GdumbSettings(every=32, epochs=2)), exam()
    curator = feed(learner, stream(8)[:4])
    before, widths = learner.predict(x), dict(curator.taxonomy.widths)
    weights = copy.deepcopy(learner.net.f.state_dict())
    feed(learner, stream(8)[4:7], curator)
    assert all(torch.equal(weights[name], value) for name, value in learner.net.f.state_dict().items())
    after = learner.predict(x)
    assert widths != curator.taxonomy.widths
    for level, width in curator.taxonomy.widths.items():
        old = after[level][:, : widths[level]]
        assert after[level].shape == (len(x), width)
        torch.testing.assert_close(old / old.sum(1, keepdim=True), before[level])


@pytest.mark.parametrize("stop", [1, 3, 4, 7])
def test_a_resumed_learner_is_the_same_bit_for_bit(stop: int) -> None:
    def make() -> GDumb:
        return GDumb(setup(), GdumbSettings(every=24, epochs=2, loss="hcon"))

    whole, second, batches = make(), make(), stream(10)
    curator = feed(whole, batches[:stop])
    second.load_state_dict(copy.deepcopy(whole.state_dict()))
    again = Curator(Oracle(true_tree()))
    again.load_state_dict(curator.state_dict())
    for learner, own in ((whole, curator), (second, again)):
        feed(learner, batches[stop:], own)
    assert_exactly(whole.state_dict(), second.state_dict())


def assert_exactly(a: object, b: object) -> None:
    if isinstance(a, dict) and isinstance(b, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_exactly(a[key], b[key])
    elif isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b
