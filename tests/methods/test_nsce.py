from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

from dhocl.checks import CHECKS, feed, passes, setup, stream
from dhocl.methods.cbrs import ClassBalanced
from dhocl.methods.nsce import NodePrototypes, NsCE, NsceSettings, confused_pairs, l1_over_l2, separation
from dhocl.objectives import LossName
from dhocl.taxonomy import UNKNOWN, Label, Taxonomy
from tensors import precise as normal
from trees import balanced_tree

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
