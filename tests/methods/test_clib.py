from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from dhocl.checks import feed, passes, setup, stream
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.methods.clib import CLIB, ClibSettings, Scored, updated
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch
from dhocl.nn.losses import given_nll
from tests.helpers.reference_clib import ScoredByHand
from tests.helpers.reference_replay import arriving, assert_step, draws, haf, late_links, learn, stored
from tests.helpers.trees import balanced_tree

LABELS = st.lists(st.integers(0, 5), min_size=20, max_size=40)


# -- the score -------------------------------------------------------------------------------------------------


def test_who_was_not_trained_on_keeps_the_score_and_a_drop_raises_it_for_who_was() -> None:
    score, used = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([True, False, True])
    new = updated(score, used, torch.tensor([2.0, 2.0, 2.0]), torch.tensor([1.0, 1.0, 1.0]), 0.9)
    assert new[1] == score[1]
    # by hand: the loss drops by 1, the mean of H over the two is 0.2, so each gains 0.1 (1 - 0.2)
    torch.testing.assert_close(new, torch.tensor([0.18, 0.2, 0.38]))


def test_nothing_happens_without_a_drop_from_zero_or_when_the_drop_was_expected() -> None:
    used, loss = torch.tensor([True, True, False]), torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(updated(torch.zeros(3), used, loss, loss, 0.9), torch.zeros(3))
    expected = torch.tensor([0.1, 0.3, 9.0])  # mean over S is 0.2
    torch.testing.assert_close(updated(expected, used, loss, loss - 0.2, 0.9), expected)


def test_a_steady_drop_is_what_the_score_comes_to() -> None:
    score, used = torch.zeros(4), torch.tensor([True, True, True, False])
    for _ in range(200):
        score = updated(score, used, torch.full((4,), 1.0), torch.full((4,), 0.75), 0.9)
    torch.testing.assert_close(score, torch.tensor([0.25, 0.25, 0.25, 0.0]))


def test_who_came_since_the_last_look_has_no_part_in_the_drop() -> None:
    before = torch.tensor([1.0, math.nan, 1.0])
    new = updated(torch.zeros(3), torch.tensor([True, True, False]), before, torch.tensor([0.5, 77.0, 0.5]), 0.9)
    torch.testing.assert_close(new, torch.tensor([0.05, 0.05, 0.0]))
    nobody = torch.full((3,), math.nan)
    assert torch.equal(updated(torch.ones(3), torch.ones(3, dtype=torch.bool), nobody, before, 0.9), torch.ones(3))


# -- the memory ------------------------------------------------------------------------------------------------


def offer(memory: Scored, labels: list[int], start: int) -> None:
    """Items whose image is their number."""
    numbers = torch.arange(start, start + len(labels))
    memory.insert(x=numbers, y=torch.tensor(labels))


def contents(memory: Scored) -> list[tuple[int, int, float]]:
    columns = [memory.columns[name][: memory.size].tolist() for name in ("x", "y", "score")]
    return list(zip(*columns, strict=True))


@settings(max_examples=25)
@given(LABELS, st.integers(1, 9), st.integers(0, 99))
def test_evicts_the_smallest_score_of_a_largest_class(labels: list[int], capacity: int, seed: int) -> None:
    memory, rng = Scored(capacity, Rng(seed, "memory")), np.random.default_rng(seed)
    for number, label in enumerate(labels):
        if number:  # scores all different
            memory.columns["score"][: memory.size] = torch.from_numpy(rng.permutation(memory.size)).float()
        before = contents(memory) if number else []
        offer(memory, [label], number)
        after = contents(memory)
        kin = [h for _, y, h in before if y == label] or [h for _, _, h in before] or [0.0]
        (came,) = [item for item in after if item[0] == number]
        assert came[1] == label
        assert came[2] == pytest.approx(np.mean(kin), abs=1e-5)
        gone = [item for item in before if item not in after]
        if len(before) < capacity:
            assert not gone
            assert len(after) == len(before) + 1
        else:
            ((_, name, h),) = gone
            counts = Counter(y for _, y, _ in before)
            counted = counts + Counter([label])
            assert counted[name] == max(counted[c] for c in counts)
            assert h == min(h for _, y, h in before if y == name)


@given(LABELS, st.integers(0, 9), st.integers(0, 99), st.booleans())
def test_one_by_one_is_the_same_as_in_batches(labels: list[int], capacity: int, seed: int, by_level: bool) -> None:
    tree = balanced_tree(2, 2)
    batched, single = (Scored(capacity, Rng(seed, "memory"), by_level) for _ in range(2))
    for memory in (batched, single):
        memory.tree = tree
        offer(memory, [0, 1, 2, 3], 0)
        memory.columns["score"][: memory.size] = torch.tensor([0.3, 0.1, 0.4, 0.2])[: memory.size]
    offer(batched, labels, 4)
    for place, label in enumerate(labels):
        offer(single, [label], 4 + place)
    assert contents(batched) == contents(single)
    assert batched.size == min(capacity, 4 + len(labels))
    assert all(y == [0, 1, 2, 3, *labels][x] for x, y, _ in contents(batched))


class WithEven(Scored):
    """An item of an even label counts for class 9 too, as one with a pseudo-label does in PL-FMS."""

    def classes(self, items: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.stack([items["y"], torch.where(items["y"] % 2 == 0, 9, -1)], 1)


def test_an_item_goes_if_any_of_its_classes_is_the_largest() -> None:
    memory = WithEven(4, Rng(0, "memory"))
    offer(memory, [0, 1, 2, 4], 0)
    memory.columns["score"][:] = torch.tensor([0.3, 0.1, 0.2, 0.4])
    offer(memory, [3], 4)
    assert memory.columns["y"].tolist() == [0, 1, 3, 4], "2 has the smallest score of the three even ones"


@pytest.mark.parametrize("b", [1, 7])
def test_classes_of_a_balanced_stream_are_balanced(b: int) -> None:
    memory, rng = Scored(20, Rng(0, "memory")), np.random.default_rng(0)
    labels = np.concatenate([rng.permutation(6) for _ in range(60)]).tolist()
    for start in range(0, len(labels), b):
        offer(memory, labels[start : start + b], start)
        memory.columns["score"][: memory.size] = torch.from_numpy(rng.random(memory.size)).float()
    counts = Counter(memory.columns["y"].tolist())
    assert len(counts) == 6
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_quota_of_levels_shares_the_memory_between_them() -> None:
    tree = balanced_tree(2, 3)
    rng = np.random.default_rng(0)
    memory = Scored(24, Rng(0, "memory"), level_quota=True)
    memory.tree = tree
    labels = np.concatenate([rng.permutation(len(tree)) for _ in range(60)]).tolist()
    offer(memory, labels, 0)
    counts = Counter(memory.columns["y"].tolist())
    per_level = Counter(tree.labels[y].level for y in memory.columns["y"].tolist())
    assert abs(per_level[0] - per_level[1]) <= 1
    for level in (0, 1):
        own = [counts[tree.id(label)] for label in tree if label.level == level]
        assert max(own) - min(own) <= 1


def test_a_replaced_item_leaves_nothing_behind() -> None:
    memory = Scored(2, Rng(0, "memory"))
    offer(memory, [0, 1], 0)
    memory.take(2)
    memory.columns["loss"][:] = 1.0
    memory.columns["score"][:] = torch.tensor([0.5, 0.25])
    offer(memory, [1], 2)  # class 1 is the largest, so its item goes
    assert contents(memory) == [(0, 0, 0.5), (2, 1, 0.25)]
    assert memory.columns["used"].tolist() == [True, False]
    assert memory.columns["loss"].isnan().tolist() == [False, True]


# -- the learner -----------------------------------------------------------------------------------------------


class Watched(CLIB):
    """Remembers what it trained on."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.trained: list[Batch] = []

    def loss(self, batches: list[Batch], taxonomy: Taxonomy) -> torch.Tensor:  # type: ignore[override]
        self.trained += batches
        return super().loss(batches, taxonomy)


def test_trains_on_the_memory_alone_and_after_inserting() -> None:
    learner = Watched(setup(buffer=20, replay_batch=4), ClibSettings())
    curator = None
    for step, batch in enumerate(batches := stream(8)):
        curator = feed(learner, [batch], curator)
        (trained,) = learner.trained
        assert len(trained.y) == (8 if step == 0 else 12)
        came = {x.numpy().tobytes() for x in torch.cat([x for x, _ in batches[: step + 1]])}
        held = {x.numpy().tobytes() for x in learner.memory.columns["x"][: learner.memory.size]}
        used = {x.numpy().tobytes() for x in trained.x}
        assert used <= held <= came
        assert len(used) == len(trained.x)
        assert len(held) == min(20, 8 * (step + 1))
        learner.trained.clear()


def test_a_look_finds_the_loss_of_each_image_as_it_is_stored_at_its_own_level() -> None:
    learner = CLIB(setup(), ClibSettings(period=1))
    tree = feed(learner, stream(6)).taxonomy
    memory = learner.memory
    logits = learner.net(memory.columns["x"]).logits
    for i, node in enumerate(memory.columns["y"].tolist()):
        z = logits[tree.labels[node].level][i]
        loss = F.cross_entropy(z[None], torch.tensor([tree.column(node)]))
        torch.testing.assert_close(memory.columns["loss"][i], loss.detach(), rtol=1e-3, atol=1e-4)
    assert not memory.columns["used"].any()
    assert memory.columns["score"].any()


def test_a_certain_mistake_has_a_finite_loss() -> None:
    tree = Taxonomy()
    for name in "ab":
        tree.add(Label(name, 0))
    losses = given_nll({0: torch.tensor([[0.0, 1.0], [0.5, 0.5]])}, torch.tensor([0, 0]), tree)
    assert torch.isfinite(losses).all()
    assert losses[0] > losses[1] == pytest.approx(math.log(2))


@pytest.mark.parametrize(("period", "looks"), [(1, 12), (5, 2)])
def test_looks_every_so_many_steps(period: int, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, count = CLIB(setup(), ClibSettings(period=period)), []
    look = learner.look
    monkeypatch.setattr(learner, "look", lambda taxonomy: (count.append(1), look(taxonomy)))
    feed(learner, stream(12))
    assert len(count) == looks


@pytest.mark.parametrize(("b", "buffer"), [(8, 80), (4, 80), (8, 240)])
def test_costs_at_most_twice_what_replay_costs(b: int, buffer: int) -> None:
    batches = stream(60, b=b)
    units = []
    for make in (lambda s: ER(s, ReplaySettings()), lambda s: CLIB(s, ClibSettings())):
        learner = make(setup(buffer, replay_batch=b // 2))
        feed(learner, batches)
        units.append(passes(learner.net.f))
    assert 1.6 < units[1] / units[0] <= 2.05


# -- the whole step --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [{}, {"period": 2, "quota": "level", "decay": 0.5}])
def test_a_step_trains_on_the_memory_that_has_the_batch_in_it_and_looks_when_it_is_time(chosen: dict[str, Any]) -> None:
    options = ClibSettings(**chosen)
    learner = CLIB(setup(buffer=60, replay_batch=4), options)
    memory, looks = ScoredByHand(60, draws(), options.quota == "level"), []
    curator = late_links()
    for number, arrived in enumerate(stream(20)):
        ((batch, tree, (step,), stats),) = learn(learner, [arrived], curator)
        memory.insert(arriving(batch, 8 * number), tree)
        slots = memory.take(12)
        x, y = stored(memory.items, slots)
        loss = haf(step.before, augment(x, memory.rng, flip=True), y, tree)
        assert_step(step, loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
        if memory.steps >= (options.period or math.ceil(len(memory.held) / (3 * len(slots)))):
            memory.look(step.after, tree, options.decay)
            looks.append(number)
        memory.assert_like(learner)
    assert memory.evicted == 100
    assert looks == (list(range(1, 20, 2)) if chosen else [0, 1, 2, 3, *range(5, 20, 2)])
