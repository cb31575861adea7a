from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix
from torch import Tensor

from dhocl.checks import CHECKS, feed, passes, setup, stream
from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy
from dhocl.methods.cbrs import ClassBalanced
from dhocl.methods.nsce import NodePrototypes, NsCE, NsceSettings, confused_pairs, l1_over_l2, separation
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch
from dhocl.nn.objectives import LossName
from tests.helpers.reference_others import (
    arriving,
    assert_same_state,
    assert_same_steps,
    path,
    slow_multi_ce,
    twins,
    watched,
)
from tests.helpers.tensors import precise as normal
from tests.helpers.trees import balanced_tree

seeds = st.integers(0, 1000)
TREE = balanced_tree(2, 3)  # 2 classes of level 0, 6 of level 1


# -- spread ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 9), seeds, st.floats(1e-3, 1e3))
def test_the_ratio_lies_between_one_and_the_root_and_is_blind_to_scale(c: int, d: int, seed: int, scale: float) -> None:
    W = normal(c, d, seed=seed)
    assert 1 - 1e-9 <= l1_over_l2(W) <= math.sqrt(c * d) + 1e-9
    torch.testing.assert_close(l1_over_l2(scale * W), l1_over_l2(W))


def test_the_ends_of_the_ratio_are_one_weight_and_equal_weights() -> None:
    W = torch.zeros(3, 4)
    W[1, 2] = -5
    assert l1_over_l2(W) == 1
    assert l1_over_l2(torch.full((3, 4), -0.2)).item() == pytest.approx(math.sqrt(12))


@given(seeds)
def test_spreading_neither_shrinks_nor_grows_the_weights(seed: int) -> None:
    W = normal(3, 7, seed=seed).requires_grad_()
    (gradient,) = torch.autograd.grad(-l1_over_l2(W), W)
    assert abs((gradient * W).sum()) < 1e-9
    assert l1_over_l2(W - 1e-3 * gradient) > l1_over_l2(W)


def test_old_classes_are_spread_and_new_ones_left_alone() -> None:
    learner, tree = NsCE(setup(), NsceSettings()), Taxonomy()
    for name in ("a", "b"):
        tree.add(Label(name, 0))
    learner.net.grow(tree)
    learner.prototypes.grow(tree)
    head = learner.net.heads.levels[0].weight
    torch.testing.assert_close(learner.concentration(), l1_over_l2(head) / 64)
    for name in ("c", "d"):
        tree.add(Label(name, 0))
    learner.net.grow(tree)
    learner.prototypes.grow(tree)
    learner.prototypes.grow(tree)  # nothing new: old stays old
    head = learner.net.heads.levels[0]
    torch.testing.assert_close(learner.concentration(), -l1_over_l2(head.weight[:2]) / 64)
    gradient, none = torch.autograd.grad(learner.concentration(), head, allow_unused=True)
    assert gradient[:2].abs().max() > 0
    assert (gradient[2:] == 0).all()
    assert none is None, "a bias is no weight"


# -- separation ------------------------------------------------------------------------------------------------


def simplex(k: int) -> torch.Tensor:
    """(k, k) with cosines -1/(k-1) between any two."""
    return torch.eye(k, dtype=torch.float64) - 1 / k


@given(st.integers(2, 8))
def test_nothing_is_left_to_separate_in_a_simplex(k: int) -> None:
    columns = torch.arange(k).repeat(2)
    features = (3 * simplex(k)[columns]).requires_grad_()
    cost = separation(features, simplex(k), columns)
    assert cost < 1e-7
    wanted = torch.where(F.one_hot(columns, k).bool(), 1.0, -1 / (k - 1)).double()
    cosines = F.normalize(features) @ F.normalize(simplex(k)).t()
    assert torch.cdist(wanted, cosines).sum() > 1, "the sum over all pairs of rows is not 0 here"


@given(seeds)
def test_separation_by_hand(seed: int) -> None:
    features, prototypes, columns = normal(4, 6, seed=seed), normal(3, 6, seed=seed + 1), torch.tensor([2, 0, 2, 1])
    total = 0.0
    for i in range(4):
        square = 0.0
        for k in range(3):
            cosine = F.cosine_similarity(features[i], prototypes[k], dim=0).item()
            square += (cosine - (1 if columns[i] == k else -0.5)) ** 2
        total += math.sqrt(square) / 4
    assert separation(features, prototypes, columns).item() == pytest.approx(total)


def test_one_class_alone_is_finite() -> None:
    assert torch.isfinite(separation(normal(3, 6), normal(1, 6, seed=1), torch.zeros(3, dtype=torch.long)))
    prototypes = NodePrototypes(6, 0.95)
    prototypes.grow(TREE)
    targets = torch.full((3, 2), UNKNOWN)
    targets[:, 1] = 4
    prototypes.observe(normal(3, 6).float(), targets)
    assert prototypes.separation(normal(3, 6).float(), targets) == 0


# -- prototypes ------------------------------------------------------------------------------------------------


def test_prototypes_move_as_by_one_image_after_the_other() -> None:
    first, second = normal(5, seed=0).float(), normal(5, seed=1).float()
    prototypes = NodePrototypes(5, 0.9)
    prototypes.grow(TREE)
    node = TREE.nodes(1)[3]
    prototypes.observe(torch.stack([first, 3 * first]), TREE.complete(torch.stack([node, node])))
    prototypes.observe(second.repeat(4, 1), TREE.complete(node.repeat(4)))
    expected = 2 * first
    for _ in range(4):
        expected = 0.9 * expected + 0.1 * second
    torch.testing.assert_close(prototypes.rows[1][3], expected)
    torch.testing.assert_close(prototypes.rows[0][TREE.ancestors(1, 0)[3]], expected)
    assert (prototypes.images[1] > 0).nonzero().tolist() == [[3]]


def test_classes_are_separated_by_column_not_by_first_appearance() -> None:
    prototypes, corners = NodePrototypes(3, 0.95), simplex(3).float()
    prototypes.grow(TREE)
    columns = torch.tensor([5, 1, 3])  # in this order they come; 0, 2 and 4 never do
    targets = torch.stack([torch.full((3,), UNKNOWN), columns], 1)
    prototypes.observe(corners, targets)
    assert prototypes.separation(corners, targets) < 1e-5
    assert prototypes.separation(corners.roll(1, 0), targets) > 1


# -- confused pairs --------------------------------------------------------------------------------------------


@given(seeds, st.floats(0, 1))
def test_pairs_are_those_of_the_confusion_matrix(seed: int, threshold: float) -> None:
    draw = torch.Generator().manual_seed(seed)
    targets, predicted = torch.randint(-1, 5, (40, 2), generator=draw), torch.randint(0, 5, (40, 2), generator=draw)
    expected = {}
    for place in range(2):
        rows = targets[:, place] != UNKNOWN
        matrix = confusion_matrix(targets[rows, place], predicted[rows, place], labels=range(5), normalize="true")
        for a in range(5):
            for b in range(a + 1, 5):
                if (share := max(matrix[a, b], matrix[b, a])) > threshold:
                    expected[place, (a, b)] = share
    found = confused_pairs(predicted, targets, threshold)
    assert set(found) == set(expected)
    assert len(found) == len(expected)
    assert [expected[pair] for pair in found] == sorted(expected.values(), reverse=True)


def test_no_pair_passes_a_threshold_of_one() -> None:
    targets = torch.tensor([[0], [0], [1]])
    assert confused_pairs(1 - targets, targets, 1.0) == []
    assert confused_pairs(1 - targets, targets, 0.99) == [(0, (0, 1))]
    assert confused_pairs(targets, targets, 0.0) == []


# -- the learner -----------------------------------------------------------------------------------------------


def make(**settings: float) -> NsCE:
    return NsCE(setup(), NsceSettings(**{"every": 12, "weight_decay": 0.0} | settings))  # type: ignore[arg-type]


def test_two_classes_are_told_apart_and_no_other_row_of_any_head_moves() -> None:
    learner = make()
    tree = feed(learner, stream(8)).taxonomy
    columns = tree.complete(learner.memory.columns["y"][: learner.memory.size])[:, 1]
    pair = int(columns.max()) - 1, int(columns.max())
    slots = torch.isin(columns, torch.tensor(pair)).nonzero()[:, 0].numpy()
    assert len(slots)
    learner.net.optimizer.load_state_dict({})  # moments would move the other rows, too
    before = {level: head.weight.detach().clone() for level, head in learner.net.heads.levels.items()}
    learner.tell_apart(1, pair, slots, columns, 64)
    after = {level: head.weight for level, head in learner.net.heads.levels.items()}
    moved = (after[1] != before[1]).any(1)
    assert moved.nonzero()[:, 0].tolist() == list(pair)
    assert torch.equal(after[0], before[0])
    step = after[1].detach() - before[1]
    torch.testing.assert_close(step[pair[0]], -step[pair[1]])  # of a softmax over two, opposite gradients


def test_the_stream_alone_between_rounds_and_two_to_three_passes_in_a_round() -> None:
    learner = make(every=32)
    units = []
    curator = None
    for batch in stream(8):
        before = passes(learner.net.f)
        curator = feed(learner, [batch], curator)
        units.append(passes(learner.net.f) - before)
    assert [u for step, u in enumerate(units) if step not in (3, 7)] == [24] * 6
    for step in (3, 7):
        assert 24 + 2 * 3 * 20 <= units[step] <= 24 + 3 * 3 * 20
    without = make(every=32, threshold=1.0)
    feed(without, stream(8))
    assert passes(without.net.f) == 8 * 24 + 2 * 2 * 3 * 20


def test_a_pair_is_confused_when_more_than_a_fifth_of_a_class_is_taken_for_the_other() -> None:
    learner = NsCE(setup(buffer=40), NsceSettings())
    tree = feed(learner, stream(10, levels=(1,))).taxonomy
    targets = tree.complete(learner.memory.nodes)
    rows = (targets[:, -1] == 0).nonzero()[:, 0]
    least = len(rows) // 5 + 1
    for count, pairs in ((least - 1, []), (least, [(1, (0, 3))])):
        taken, told = targets.clone(), []
        taken[rows[:count], -1] = 3
        learner.go_over = lambda b, tree, taken=taken: taken  # type: ignore[method-assign]
        learner.tell_apart = lambda level, pair, *_, told=told: told.append((level, pair))  # type: ignore[method-assign]
        learner.rehearse(12, tree)
        assert told == pairs


@pytest.mark.parametrize(("samples", "every"), [(80, 8), (160, 16), (None, 500)])
def test_by_default_a_round_comes_ten_times_a_stream(samples: int | None, every: int) -> None:
    learner, sizes = NsCE(setup()._replace(samples=samples), NsceSettings()), []
    learner.rehearse = lambda b, tree: sizes.append(learner.memory.seen)  # type: ignore[method-assign]
    curator = feed(learner, stream(10))  # 8 a batch
    learner.memory.seen = 496
    feed(learner, stream(1), curator)
    assert sizes == [seen for seen in (*range(8, 81, 8), 504) if seen // every > (seen - 8) // every]


def test_keeps_a_balanced_memory() -> None:
    assert isinstance(make().memory, ClassBalanced)


@pytest.mark.parametrize("loss", ["multi_ce", "hxe", "soft_ce", "hcon"])
def test_goes_with_every_loss(loss: LossName) -> None:
    for check in CHECKS[:2]:
        check(lambda given: NsCE(given, NsceSettings(every=12, loss=loss)))


def test_the_prototype_of_a_merged_class_becomes_part_of_its_accepted_class() -> None:
    tree, prototypes = Taxonomy(), NodePrototypes(2, momentum=0.0)
    for name in "abc":
        tree.add(Label(name, 0))
    prototypes.grow(tree)
    prototypes.rows[0][:] = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 4.0]])
    prototypes.images[0][:] = torch.tensor([1.0, 0.0, 3.0])
    tree.merge(2, 0)
    tree.merge(1, 0)
    for _ in range(2):
        prototypes.grow(tree)
        torch.testing.assert_close(prototypes.rows[0][0], torch.tensor([0.25, 3.0]))
        assert prototypes.images[0].tolist() == [4, 0, 0], "the others have none to keep away from"


# -- a step and a round recomputed -----------------------------------------------------------------------------


class Known:
    """What the reference keeps of its own over the steps."""

    def __init__(self) -> None:
        self.means: dict[tuple[int, int], Tensor] = {}  # level, column -> running mean feature
        self.widths: dict[int, int] = {}
        self.old: dict[int, int] = {}  # level -> classes before it last grew

    def grow(self, tree: Taxonomy) -> None:
        for level, width in tree.widths.items():
            if width > (before := self.widths.get(level, 0)):
                self.old[level], self.widths[level] = before, width

    def observe(self, features: Tensor, paths: list[list[int]], tree: Taxonomy) -> None:
        for place, level in enumerate(tree.levels):
            for column in {row[place] for row in paths} - {-1}:
                own = torch.stack([f for f, row in zip(features, paths, strict=True) if row[place] == column])
                mean = self.means.get((level, column))
                for _ in own if mean is not None else []:
                    mean = 0.95 * mean + 0.05 * own.mean(0)
                self.means[level, column] = own.mean(0) if mean is None else mean


def reference_stream_loss(twin: NsCE, known: Known, batch: Batch, tree: Taxonomy) -> Tensor:
    output = twin.net(augment(batch.x, twin.rng, True))
    paths = [path(tree, node) for node in batch.y.tolist()]
    known.observe(output.features.detach(), paths, tree)
    loss = slow_multi_ce(output.logits, batch.y, tree)
    for place, level in enumerate(tree.levels):
        W, old = twin.net.heads.levels[level].weight, known.old[level]
        part = W[:old] if old else W
        ratio = part.abs().sum() / (part**2).sum().sqrt() / W.shape[1]
        loss = loss + (-0.01 if old else 0.01) * ratio
        columns = sorted(column for h, column in known.means if h == level)
        rows = [i for i, row in enumerate(paths) if row[place] >= 0]
        for i in rows if len(columns) > 1 else []:
            squares = torch.zeros(())
            for column in columns:
                cosine = F.cosine_similarity(output.features[i], known.means[level, column], dim=0)
                squares = squares + (cosine - (1 if column == paths[i][place] else -1 / (len(columns) - 1))) ** 2
            loss = loss + 0.1 * squares.sqrt() / len(rows)
    return loss


def reference_round(twin: NsCE, tree: Taxonomy) -> int:
    """Both passes over the memory and the confused pairs between them; how many pairs were gone over."""
    size = twin.memory.size
    x, y = twin.memory.columns["x"][:size], twin.memory.columns["y"][:size]
    paths = [path(tree, node) for node in y.tolist()]

    def parts(slots: list[int]) -> list[list[int]]:
        order = twin.rng.permutation(np.array(slots)).tolist()
        return [order[i : i + 12] for i in range(0, len(order), 12)]  # 8 of the stream and 4 replayed

    def whole_pass() -> dict[int, list[int]]:
        taken = {}
        for part in parts(list(range(size))):
            logits = twin.net(augment(x[part], twin.rng, True)).logits
            taken |= {slot: [int(z[i].argmax()) for z in logits.values()] for i, slot in enumerate(part)}
            twin.net.step(slow_multi_ce(logits, y[part], tree))
        return taken

    taken, shares = whole_pass(), {}
    for place in range(len(tree.levels)):
        for own in range(tree.widths[tree.levels[place]]):
            items = [slot for slot in range(size) if paths[slot][place] == own]
            for other in {taken[slot][place] for slot in items} - {own}:
                share = sum(taken[slot][place] == other for slot in items) / len(items)
                pair = place, min(own, other), max(own, other)
                if share > 0.2:
                    shares[pair] = max(share, shares.get(pair, 0.0))
    room, gone_over = size, 0
    for place, a, b in sorted(shares, key=lambda pair: (-shares[pair], pair)):
        slots = [slot for slot in range(size) if paths[slot][place] in (a, b)]
        if len(slots) > room:
            continue
        room, gone_over = room - len(slots), gone_over + 1
        for part in parts(slots):
            z = twin.net(augment(x[part], twin.rng, True)).logits[tree.levels[place]]
            loss = torch.zeros(())
            for i, slot in enumerate(part):
                two = torch.stack([z[i, a], z[i, b]])
                loss = loss + F.cross_entropy(two, torch.tensor(int(paths[slot][place] == b))) / len(part)
            twin.net.step(loss)
    whole_pass()
    return gone_over


def test_a_step_is_the_loss_of_the_stream_and_a_round_goes_over_memory_pairs_and_memory() -> None:
    def make() -> NsCE:
        return NsCE(setup(), NsceSettings(every=20, loss="multi_ce"))

    learner, known, rounds, pairs = make(), Known(), 0, 0
    steps = watched(learner.net)
    for number, (batch, tree) in enumerate(arriving(8), 1):
        twin = twins(make, learner)
        wanted = watched(twin.net)
        twin.net.grow(tree)
        known.grow(tree)
        loss = reference_stream_loss(twin, known, batch, tree)
        twin.net.step(loss)
        twin.memory.insert(x=batch.x, y=batch.y)
        if 8 * number // 20 > 8 * (number - 1) // 20:
            rounds += 1
            pairs += reference_round(twin, tree)

        steps.clear()
        assert learner.learn(batch, tree) == pytest.approx({"loss": loss.item()}, rel=1e-3)
        assert_same_steps(steps, wanted)
        own, other = learner.state_dict(), twin.state_dict()
        kept = own.pop("prototypes")
        other.pop("prototypes")
        assert_same_state(own, other)
        for (level, column), mean in known.means.items():
            torch.testing.assert_close(kept[str(level)]["rows"][column], mean, rtol=1e-4, atol=1e-5)
        assert {int(level): entry["old"] for level, entry in kept.items()} == known.old
    assert rounds == 3
    assert pairs > 1, "no confused pairs"
    assert all(known.old.values()), "otherwise nothing is old"
