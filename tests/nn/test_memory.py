from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.nn.memory import Everything, Memory, Reservoir


def offer(memory: Memory, start: int, n: int) -> None:
    numbers = torch.arange(start, start + n)
    memory.insert(x=numbers[:, None].expand(-1, 3).to(torch.uint8), y=numbers)


@given(st.integers(0, 12), st.lists(st.integers(1, 9), max_size=12), st.integers(0, 99))
def test_holds_what_really_came_and_no_more_than_it_may(capacity: int, batches: list[int], seed: int) -> None:
    memory = Reservoir(capacity, Rng(seed, "memory"))
    came = 0
    for n in batches:
        offer(memory, came, n)
        came += n
        kept = memory.columns["y"][: memory.size].tolist()
        assert memory.size == min(capacity, came)
        assert len(set(kept)) == len(kept)
        assert set(kept) <= set(range(came))
        if came <= capacity:
            assert kept == list(range(came))
        assert torch.equal(memory.columns["x"][: memory.size, 0], memory.columns["y"][: memory.size].to(torch.uint8))
        if memory.columns:
            assert memory.columns["arrived"][: memory.size].tolist() == kept


def test_every_item_is_kept_with_the_same_probability() -> None:
    capacity, n, runs = 10, 50, 4000
    kept = np.zeros(n)
    for seed in range(runs):
        memory = Reservoir(capacity, Rng(seed, "memory"))
        for start in range(0, n, 7):
            offer(memory, start, min(7, n - start))
        kept[memory.columns["y"][: memory.size]] += 1
    assert chisquare(kept).pvalue > 1e-3  # all expected to be runs * capacity / n


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 99))
def test_one_by_one_is_the_same_as_in_batches(capacity: int, n: int, seed: int) -> None:
    batched, single = Reservoir(capacity, Rng(seed, "memory")), Reservoir(capacity, Rng(seed, "memory"))
    offer(batched, 0, n)
    for i in range(n):
        offer(single, i, 1)
    assert torch.equal(batched.columns["y"][: batched.size], single.columns["y"][: single.size])


def test_samples_are_distinct_and_uniform() -> None:
    memory = Reservoir(20, Rng(0, "memory"))
    offer(memory, 0, 20)
    drawn = np.zeros(20)
    for _ in range(5000):
        picked = memory.sample(6)["y"].tolist()
        assert len(set(picked)) == 6
        drawn[picked] += 1
    assert chisquare(drawn).pvalue > 1e-3
    assert sorted(memory.sample(100)["y"].tolist()) == list(range(20))


def test_an_empty_memory_gives_nothing() -> None:
    assert Reservoir(5, Rng(0, "memory")).sample(3) == {}
    none = Reservoir(0, Rng(0, "memory"))
    offer(none, 0, 4)
    assert none.sample(3) == {}
    offer(full := Reservoir(4, Rng(0, "memory")), 0, 4)
    assert full.sample(0) == {}


def test_state_survives_a_restart() -> None:
    whole = Reservoir(8, Rng(0, "memory"))
    offer(whole, 0, 30)
    first = Reservoir(8, rng := Rng(0, "memory"))
    offer(first, 0, 12)
    second = Reservoir(8, again := Rng(9, "memory"))
    second.load_state_dict(first.state_dict())
    again.load_state_dict(rng.state_dict())
    offer(second, 12, 18)
    assert torch.equal(second.columns["y"], whole.columns["y"])
    assert torch.equal(second.sample(5)["y"], whole.sample(5)["y"])


def test_items_of_a_merged_class_become_those_of_its_accepted_class() -> None:
    tree, memory = Taxonomy(), Reservoir(9, Rng(0, "memory"))
    for name in "abc":
        tree.add(Label(name, 0))
    memory.follow(tree)  # there is nothing yet
    memory.insert(y=torch.tensor([0, 1, 2, 1]))
    memory.follow(tree)
    assert memory.nodes.tolist() == [0, 1, 2, 1]
    tree.merge(1, 2)
    memory.follow(tree)
    assert memory.nodes.tolist() == [0, 2, 2, 2]


class Counting(Reservoir):
    joined = 0

    def join(self, taxonomy: Taxonomy) -> None:
        self.joined += 1
        super().join(taxonomy)


def test_labels_are_looked_at_again_only_after_a_merge() -> None:
    tree, memory = Taxonomy(), Counting(9, Rng(0, "memory"))
    nodes = [tree.add(Label(name, 0)) for name in "abcd"]
    memory.insert(y=torch.tensor(nodes))
    counts = []
    for into in (1, 2):
        for _ in range(2):
            memory.follow(tree)
            counts.append(memory.joined)
        tree.merge(into - 1, into)
        memory.follow(tree)
        counts.append(memory.joined)
    assert counts == [0, 0, 1, 1, 1, 2]
    assert memory.nodes.tolist() == [2, 2, 2, 3]


def test_what_is_kept_beside_images_and_labels() -> None:
    memory = Reservoir(3, Rng(0, "memory"))
    assert memory.nodes.dtype == torch.long
    assert memory.nodes.shape == (0,)
    wanted = torch.arange(8.0).view(4, 2).double().requires_grad_()
    memory.insert(y=torch.arange(4), feature=wanted[:, None])
    assert memory.columns["feature"].dtype == torch.double
    assert memory.columns["feature"].shape == (3, 1, 2)
    assert torch.equal(memory.columns["feature"][:, 0], wanted.detach()[memory.nodes])
    other = Reservoir(3, Rng(0, "memory"))
    other.insert(y=torch.arange(2), score=torch.zeros(2))
    other.load_state_dict(memory.state_dict())
    assert other.columns.keys() == {"y", "arrived", "feature"}, "nothing is left of before"
    assert all(torch.equal(other.columns[name], column) for name, column in memory.columns.items())
    assert all(other.columns[name].dtype == column.dtype for name, column in memory.columns.items())
    assert (other.size, other.seen) == (3, 4)


def test_columns_that_do_not_fit_those_of_the_first_batch_are_refused() -> None:
    memory = Reservoir(9, Rng(0, "memory"))
    memory.insert(y=torch.arange(3), score=torch.ones(3))
    for items, problem in (
        ({"y": torch.arange(2), "score": torch.ones(2), "late": torch.ones(2)}, "late"),
        ({"y": torch.arange(2)}, "score"),
        ({"y": torch.arange(2), "score": torch.ones(3)}, "'score': 3"),
    ):
        with pytest.raises(ValueError, match=problem):
            memory.insert(**items)
        assert (memory.size, memory.seen) == (3, 3), "a refused batch leaves no trace"
        assert memory.columns.keys() == {"y", "arrived", "score"}
    memory.insert(y=torch.arange(2), score=torch.ones(2))
    assert memory.columns["arrived"][:5].tolist() == list(range(5))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (torch.zeros(2, 3), torch.zeros(2)),
        (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.double)),
        (torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 4, dtype=torch.long)),
        (torch.zeros(2, 3, 4), torch.zeros(2, 1, 4)),  # numpy would repeat it
        (torch.zeros(2, 3, 4), torch.zeros(2, 4, 4)),
    ],
)
def test_only_rows_of_floats_may_change_their_width(first: Tensor, then: Tensor) -> None:
    memory = Reservoir(9, Rng(0, "memory"))
    memory.insert(y=torch.arange(2), z=first)
    with pytest.raises(ValueError, match="column z "):
        memory.insert(y=torch.arange(2), z=then)
    assert (memory.size, memory.seen) == (2, 2)


widths = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5)), max_size=9)  # rows and width of each batch


def offer_logits(memory: Memory, batches: list[tuple[int, int]], start: int = 0) -> None:
    """Entry c of the item that arrived as number i is 10 i + c."""
    for n, width in batches:
        numbers = torch.arange(start, start + n)
        memory.insert(y=numbers, logits=10.0 * numbers[:, None] + torch.arange(width))
        start += n


@pytest.mark.parametrize("kind", [Reservoir, Everything])
@given(capacity=st.integers(0, 9), batches=widths, seed=st.integers(0, 99))
def test_logits_keep_the_width_that_they_were_stored_with(
    kind: type[Memory], capacity: int, batches: list[tuple[int, int]], seed: int
) -> None:
    memory = kind(capacity, Rng(seed, "memory"))
    offer_logits(memory, batches)
    given = [width for n, width in batches for _ in range(n)]  # by arrival
    items = memory.read(np.arange(memory.size))
    for number, row in zip(items.get("y", torch.empty(0)).tolist(), items.get("logits", []), strict=True):
        assert row[: given[number]].tolist() == [10 * number + c for c in range(given[number])]
        assert row[given[number] :].isnan().all()
    if batches:
        assert items["logits"].shape[1] == max(width for _, width in batches)


@pytest.mark.parametrize("kind", [Reservoir, Everything])
@given(capacity=st.integers(0, 9), first=widths, then=widths)
def test_logits_survive_a_restart(
    kind: type[Memory], capacity: int, first: list[tuple[int, int]], then: list[tuple[int, int]]
) -> None:
    whole = kind(capacity, rng := Rng(0, "memory"))
    offer_logits(whole, first)
    resumed = kind(capacity, again := Rng(0, "memory"))
    again.load_state_dict(rng.state_dict())
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    for memory in (whole, resumed):
        offer_logits(memory, then, start=sum(n for n, _ in first))
    found, wanted = resumed.state_dict()["columns"], whole.state_dict()["columns"]
    assert found.keys() == wanted.keys()
    for name, column in wanted.items():
        torch.testing.assert_close(found[name], column, rtol=0, atol=0, equal_nan=True)


def test_columns_are_copied_only_when_they_become_wider() -> None:
    memory, places = Reservoir(9, Rng(0, "memory")), []
    for width in (3, 3, 2, 4):
        offer_logits(memory, [(2, width)])
        places.append(memory.columns["logits"].data_ptr())
    assert places[0] == places[1] == places[2] != places[3]


def test_everything_is_kept_and_room_doubles() -> None:
    memory, capacities = Everything(0, Rng(0, "memory")), []
    came = 0
    for n in (3, 1, 2, 9):
        offer(memory, came, n)
        came += n
        capacities.append(memory.capacity)
        assert memory.nodes.tolist() == memory.columns["arrived"][:came].tolist() == list(range(came))
        assert memory.columns["x"][:came, 0].tolist() == list(range(came))
    assert capacities == [3, 6, 6, 15]
    again = Everything(0, Rng(0, "memory"))
    again.load_state_dict(memory.state_dict())
    offer(again, came, 2)
    assert again.nodes.tolist() == list(range(came + 2))
    assert again.capacity == 30
    roomy = Everything(99, Rng(0, "memory"))
    roomy.load_state_dict(memory.state_dict())
    assert roomy.capacity == len(roomy.columns["y"]) == 99


def test_a_memory_needs_a_size_and_a_policy() -> None:
    with pytest.raises(ValueError, match="-1"):
        Reservoir(-1, Rng(0, "memory"))
    with pytest.raises(NotImplementedError):
        Memory(1, Rng(0, "memory")).insert(y=torch.arange(1))


@given(
    kind=st.sampled_from([Reservoir, Everything]),
    capacity=st.integers(0, 8),
    steps=st.lists(st.tuples(st.integers(1, 5), st.sets(st.integers(0, 7), max_size=3)), max_size=8),
    seed=st.integers(0, 99),
)
def test_what_is_removed_leaves_no_hole(
    kind: type[Memory], capacity: int, steps: list[tuple[int, set[int]]], seed: int
) -> None:
    """Free slots are filled first, and the others keep their order."""
    memory, came = kind(capacity, Rng(seed, "memory")), 0
    for n, slots in steps:
        before = memory.size
        offer(memory, came, n)
        came += n
        assert memory.size == (before + n if kind is Everything else min(capacity, before + n))
        held = memory.nodes.tolist()
        gone = [held[slot] for slot in slots if slot < memory.size]
        numbers = torch.tensor([*gone, came + 1])  # the last was never stored
        images = numbers[:, None].expand(-1, 3).to(torch.uint8)
        memory.remove(memory.find("x", images, numbers))
        assert memory.nodes.tolist() == [number for number in held if number not in gone]
        if memory.columns:
            assert memory.columns["x"][: memory.size, 2].tolist() == memory.nodes.tolist()
            assert memory.columns["arrived"][: memory.size].tolist() == memory.nodes.tolist()


def test_of_equal_items_the_newest_is_found_and_features_may_be_rounded() -> None:
    memory = Everything(0, Rng(0, "memory"))
    phi = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    memory.insert(phi=phi, y=torch.tensor([3, 3, 3, 4]))
    near = torch.tensor([[1.0 + 1e-6, 0.0]])
    assert memory.find("phi", near, torch.tensor([3])).tolist() == []
    assert memory.find("phi", near, torch.tensor([3]), tolerance=1e-4).tolist() == [1]
    assert memory.find("phi", near.repeat(3, 1), torch.tensor([3, 3, 3]), tolerance=1e-4).tolist() == [1, 0]
