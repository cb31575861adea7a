from __future__ import annotations

import copy
from collections import defaultdict
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestCentroid
from torch import Tensor

from dhocl.checks import CHECKS, exam, feed, passes, setup, stream
from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy
from dhocl.methods.icarl_sdc import ICaRL, IcarlSettings, Means, binary_loss, drift, nearest_mean
from dhocl.nn.network import Network
from tests.helpers.reference_distil import Step, assert_remembered, assert_step, columns, steps, views
from tests.helpers.tensors import precise as normal

seeds = st.integers(0, 1000)


# -- drift compensation ----------------------------------------------------------------------------------------


@given(seeds, st.floats(0.05, 50))
def test_a_drift_that_is_the_same_everywhere_is_the_drift_of_every_mean(seed: int, sigma: float) -> None:
    means, before, by = normal(4, 6, seed=seed) / 9, normal(30, 6, seed=seed + 1) / 9, normal(6, seed=seed + 2)
    torch.testing.assert_close(drift(means, before, before + by, sigma), by.expand(4, 6), rtol=0, atol=1e-12)


@given(seeds)
def test_with_a_boundless_reach_every_mean_drifts_as_the_average(seed: int) -> None:
    means, before, after = normal(4, 6, seed=seed), normal(30, 6, seed=seed + 1), normal(30, 6, seed=seed + 2)
    torch.testing.assert_close(drift(means, before, after, 1e9), (after - before).mean(0).expand(4, 6))


@given(seeds)
def test_drift_by_its_formula(seed: int) -> None:
    means, before, after = normal(3, 5, seed=seed), normal(8, 5, seed=seed + 1), normal(8, 5, seed=seed + 2)
    by_hand = torch.zeros(3, 5, dtype=torch.float64)
    for c in range(3):
        w = torch.stack([(-((z - means[c]) ** 2).sum() / (2 * 1.5**2)).exp() for z in before])
        by_hand[c] = sum(w[i] * (after[i] - before[i]) for i in range(8)) / w.sum()
    torch.testing.assert_close(drift(means, before, after, 1.5), by_hand)


def test_each_mean_drifts_as_its_own_neighbourhood() -> None:
    corners = torch.eye(6, dtype=torch.float64)[:2]
    before = corners.repeat_interleave(20, 0) + normal(40, 6, seed=0) / 50
    by = normal(2, 6, seed=1)
    moved = drift(corners, before, before + by.repeat_interleave(20, 0), 0.2)
    torch.testing.assert_close(moved, by, rtol=0, atol=1e-6)


def test_a_mean_with_nothing_near_stays_and_so_do_all_without_data() -> None:
    means, before = torch.tensor([[0.0, 0.0], [1e3, 0.0]]), torch.tensor([[0.1, 0.0]])
    moved = drift(means, before, before + 1, 0.2)
    assert moved[1].tolist() == [0, 0]
    torch.testing.assert_close(moved[0], torch.ones(2))
    assert (drift(means, before[:0], before[:0], 0.2) == 0).all()


def test_a_reach_ends_at_ten_sigma() -> None:
    """There a weight is exp(-50)."""
    means, before = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 0.0]])
    assert drift(means, before, before + 1, sigma=0.202).tolist() == [[1, 1]]
    assert drift(means, before, before + 1, sigma=0.198).tolist() == [[0, 0]]


def pets() -> Taxonomy:
    """cat 0, dog 1 of level 0; tom 2 (a cat), rex 3 (a dog), pug 4 (a dog) of level 1."""
    tree = Taxonomy()
    for name, level in [("cat", 0), ("dog", 0), ("tom", 1), ("rex", 1), ("pug", 1)]:
        tree.add(Label(name, level))
    for child, parent in [(2, 0), (3, 1), (4, 1)]:
        tree.link(child, parent)
    return tree


def test_means_of_the_current_data_are_those_of_exemplars_and_stay_so() -> None:
    tree, means = pets(), Means(3)
    means.grow(tree)
    means.observe(torch.eye(3), tree.complete(torch.tensor([2, 3, 3])))
    exemplars, labels = F.normalize(torch.tensor([[1.0, 2, 3], [3, 1, 0], [0, 1, 1]])), torch.tensor([2, 3, 3])
    means.renew(tree.complete(torch.tensor([3])), exemplars, tree.complete(labels))
    fresh = exemplars[1:].mean(0)
    torch.testing.assert_close(means.rows[0], torch.stack([torch.eye(3)[0], fresh]))
    torch.testing.assert_close(means.rows[1], torch.stack([torch.eye(3)[0], fresh, torch.zeros(3)]))
    assert (means.counts[1] > 0).tolist() == [True, True, False]
    means.observe(torch.eye(3), tree.complete(torch.tensor([2, 3, 4])))
    torch.testing.assert_close(means.rows[1][1], fresh)
    torch.testing.assert_close(means.rows[1][2], torch.eye(3)[2])


def test_only_what_is_older_than_the_copy_drifts() -> None:
    tree, means, by = pets(), Means(3), torch.tensor([0.1, -0.2, 0.3])
    means.grow(tree)
    means.observe(torch.eye(3)[:2], tree.complete(torch.tensor([2, 3])))
    means.settle()
    means.observe(torch.eye(3), tree.complete(torch.tensor([3, 3, 4])))
    before = means.rows[1].clone()
    means.shift(torch.eye(3), torch.eye(3) + by, 10.0)
    torch.testing.assert_close(means.rows[1] - before, torch.tensor([[1.0], [1 / 3], [0]]) * by)
    means.renew(tree.complete(torch.tensor([3])), torch.eye(3)[:1], tree.complete(torch.tensor([3])))
    means.settle()
    before = means.rows[1].clone()
    means.shift(torch.eye(3), torch.eye(3) + by, 10.0)
    torch.testing.assert_close(means.rows[1] - before, by.expand(3, 3))


def test_a_running_mean_is_over_all_labelled_samples_at_or_below_the_node() -> None:
    tree, means, unit = pets(), Means(4), F.normalize(normal(9, 4, seed=0).float())
    means.grow(tree)
    y = torch.tensor([2, 3, 4, 0, 3, 3, 4, 1, 3])
    for part in torch.arange(9).split(4):
        means.observe(unit[part], tree.complete(y[part]))
    torch.testing.assert_close(means.rows[0][1], unit[[1, 2, 4, 5, 6, 7, 8]].mean(0))
    torch.testing.assert_close(means.rows[1], torch.stack([unit[y == node].mean(0) for node in (2, 3, 4)]))


# -- prediction ------------------------------------------------------------------------------------------------


@given(seeds, st.floats(0.01, 100))
def test_the_nearest_mean_is_that_of_scikit_learn_whatever_the_scale_of_features(seed: int, scale: float) -> None:
    means, x = normal(7, 5, seed=seed), normal(40, 5, seed=seed + 1)
    around = 0.01 * normal(7, 5, seed=seed + 2)
    points = torch.cat([F.normalize(means) + around, F.normalize(means) - around])  # with the means for centroids
    reference = NearestCentroid().fit(points.numpy(), [*range(7)] * 2)
    known = torch.ones(7, dtype=torch.bool)
    p = nearest_mean(F.normalize(x), means, known, 0.05)
    assert p.argmax(1).tolist() == reference.predict(F.normalize(x).numpy()).tolist()
    torch.testing.assert_close(nearest_mean(F.normalize(scale * x), scale * means, known, 0.05), p)


def test_probabilities_are_a_softmax_of_squared_distances() -> None:
    means, unit = F.normalize(normal(3, 5, seed=0)), F.normalize(normal(4, 5, seed=1))
    squared = torch.stack([torch.stack([(u - m).square().sum() for m in means]) for u in unit])
    p = nearest_mean(unit, means, torch.ones(3, dtype=torch.bool), 0.3)
    torch.testing.assert_close(p, (-squared / 0.3).softmax(1))


def test_a_class_without_a_mean_is_unlikely_and_all_are_alike_when_none_has_one() -> None:
    means, unit = F.normalize(normal(3, 5, seed=0)), F.normalize(normal(4, 5, seed=1))
    p = nearest_mean(unit, means, torch.tensor([True, False, True]), 0.05)
    assert (p[:, 1] <= p.amin(1)).all()
    torch.testing.assert_close(
        nearest_mean(unit, means, torch.zeros(3, dtype=torch.bool), 0.05), torch.full_like(p, 1 / 3)
    )


# -- loss ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_label", [False, True])
def test_the_loss_by_hand(own_label: bool) -> None:
    logits = {0: normal(4, 3, seed=0), 2: normal(4, 5, seed=1)}
    old = {2: normal(4, 2, seed=2)}  # level 0 came after the copy, and so did three classes of level 2
    targets = torch.tensor([[0, 1], [2, UNKNOWN], [UNKNOWN, 4], [1, 0]])
    total = 0.0
    for place, level in enumerate(logits):
        rows = [row for row in range(4) if targets[row, place] != UNKNOWN]
        for row in rows:
            for c in range(logits[level].shape[1]):
                wanted = float(targets[row, place] == c)
                if level == 2 and c < 2 and not (own_label and wanted):
                    wanted = 1 / (1 + (-old[2][row, c]).exp().item())
                q = 1 / (1 + (-logits[level][row, c]).exp())
                total -= (wanted * q.log() + (1 - wanted) * (1 - q).log()).item() / len(rows)
    assert binary_loss(logits, old, targets, own_label).item() == pytest.approx(total)


def test_the_old_network_is_where_old_classes_rest() -> None:
    old = normal(6, 4, seed=0)
    z = torch.cat([old, normal(6, 2, seed=1)], 1).requires_grad_()
    targets = torch.tensor([[4], [5], [0], [1], [4], [5]])
    (gradient,) = torch.autograd.grad(binary_loss({0: z}, {0: old}, targets, False), z)
    assert gradient[:, :4].abs().max() < 1e-12
    assert gradient[:, 4:].abs().min() > 1e-3


def test_rows_without_a_label_and_levels_without_labels_add_nothing() -> None:
    z = normal(2, 3, seed=0).requires_grad_()
    loss = binary_loss({0: z, 1: z}, {}, torch.tensor([[0, UNKNOWN], [UNKNOWN, UNKNOWN]]), True)
    (gradient,) = torch.autograd.grad(loss, z)
    assert (gradient[1] == 0).all()
    assert torch.isfinite(loss)
    torch.testing.assert_close(
        loss, F.binary_cross_entropy_with_logits(z[0], torch.eye(3).double()[0], reduction="sum")
    )


# -- the learner -----------------------------------------------------------------------------------------------


def make(**settings: float | str) -> ICaRL:
    return ICaRL(setup(), IcarlSettings(every=12, **settings))  # type: ignore[arg-type]


def test_means_are_over_exemplars_at_or_below_the_node() -> None:
    learner = make(means="exemplars")
    tree = feed(learner, stream(4)).taxonomy
    learner.means.met = set(range(len(tree)))
    learner.follow(tree)
    unit = F.normalize(learner.net(learner.memory.columns["x"][: learner.memory.size]).features.detach())
    paths = [tree.lineage(node) for node in learner.memory.columns["y"][: learner.memory.size].tolist()]
    for level in tree.levels:
        for column, node in enumerate(tree.nodes(level).tolist()):
            below = unit[[node in path for path in paths]]
            torch.testing.assert_close(learner.means.rows[level][column], below.mean(0), rtol=0, atol=1e-5)


def test_a_network_that_stands_still_leaves_means_where_they_are() -> None:
    learner = make(lr_backbone=0.0)
    curator = feed(learner, stream(4))  # birds, then fish
    before = {level: rows.clone() for level, rows in learner.means.rows.items()}
    learner.means.met = {curator.taxonomy.id(Label("cod", 1))}
    learner.follow(curator.taxonomy)
    for level, rows in before.items():
        absent = [
            c
            for c, n in enumerate(curator.taxonomy.nodes(level))
            if curator.taxonomy.labels[n].name not in ("cod", "fish")
        ]
        assert absent
        torch.testing.assert_close(learner.means.rows[level][absent], rows[absent], rtol=0, atol=1e-6)


def test_a_network_that_moves_takes_means_of_absent_classes_along() -> None:
    learner = make(sigma=1.0)
    curator = feed(learner, stream(6))
    before = {level: rows.clone() for level, rows in learner.means.rows.items()}
    with torch.no_grad():
        for p in learner.net.f.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    learner.means.met = {curator.taxonomy.id(Label("cod", 1))}
    learner.follow(curator.taxonomy)
    robin = curator.taxonomy.column(curator.taxonomy.id(Label("robin", 1)))
    assert (learner.means.rows[1][robin] - before[1][robin]).norm() > 1e-3


def test_the_drift_is_seen_from_the_copy_before() -> None:
    learner = ICaRL(setup(), IcarlSettings(every=16, lr_backbone=1e-3, sigma=1.0))
    batches = stream(8)  # birds in the first four, then fish
    curator = feed(learner, batches[:5])
    bird = learner.means.rows[0][curator.taxonomy.column(curator.taxonomy.id(Label("bird", 0)))].clone()
    feed(learner, batches[5:6], curator)  # a copy is taken, of data without birds
    after = learner.means.rows[0][curator.taxonomy.column(curator.taxonomy.id(Label("bird", 0)))]
    assert (after - bird).norm() > 1e-4


def test_predicting_costs_one_look_at_each_image() -> None:
    learner = make()
    feed(learner, stream(4))
    before = passes(learner.net.f)
    learner.predict(exam()[0])
    assert passes(learner.net.f) - before == len(exam()[0])


def test_the_letter_learns_too() -> None:
    CHECKS[-1](lambda given: ICaRL(given, IcarlSettings(every=12, own_label=False)))


def test_exemplars_of_a_merged_class_tell_the_drift_of_its_accepted_class(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make()
    tree = feed(learner, stream(3)).taxonomy
    robin, crow = (tree.id(Label(name, 1)) for name in ("robin", "crow"))
    both = torch.isin(learner.memory.nodes, torch.tensor([robin, crow])).sum()
    learner.means.met = {crow}
    tree.merge(crow, robin)
    learner.memory.follow(tree)
    learner.old.take()
    shifts = []
    monkeypatch.setattr(learner.means, "shift", lambda before, after, sigma: shifts.append((before, after)))
    learner.follow(tree)
    assert [len(part) for part in shifts[0]] == [both, both]


# -- steps by hand ---------------------------------------------------------------------------------------------


class Node:
    """The vectors that a mean is over."""

    def __init__(self) -> None:
        self.vectors: list[Tensor] = []
        self.older = 0  # how many of them, the first, are older than the last copy
        self.exemplars = False

    @property
    def mean(self) -> Tensor:
        return torch.stack(self.vectors).mean(0)


def loss_by_hand(step: Step, old: Network | None) -> tuple[Tensor, Tensor]:
    """And the unit features (b, d) of the stream batch."""
    total, units = torch.zeros(()), []
    for pixels, y in views(step):
        output = step.twin.net(pixels)
        units.append(F.normalize(output.features.detach()))
        known = {} if old is None else {level: z.detach().sigmoid() for level, z in old(pixels).logits.items()}
        for level, z in output.logits.items():
            labelled = columns(y, level, step.taxonomy)
            for row, own in labelled.items():
                for c, p in enumerate(z[row].sigmoid()):
                    wanted = 1.0 if c == own else 0.0
                    if c != own and level in known and c < known[level].shape[1]:
                        wanted = known[level][row, c]
                    total = total - (wanted * p.log() + (1 - wanted) * (1 - p).log()) / len(labelled)
    return total, units[0]


def drift_by_hand(mean: Tensor, before: Tensor, after: Tensor, sigma: float) -> Tensor:
    weights = [(-(z - mean).square().sum() / (2 * sigma**2)).exp() for z in before]
    moved = [w * (new - old) for w, old, new in zip(weights, before, after, strict=True)]
    return torch.stack(moved).sum(0) / torch.stack(weights).sum()


def follow_by_hand(learner: ICaRL, nodes: dict[int, Node], met: set[int], old: Network | None, tree: Taxonomy) -> None:
    x, y = learner.memory.columns["x"][: learner.memory.size], learner.memory.nodes.tolist()
    now = F.normalize(learner.net(x).features.detach())
    current = [row for row, node in enumerate(y) if node in met]
    if old is not None and current:
        then = F.normalize(old(x).features.detach())
        for node in nodes.values():
            by = drift_by_hand(node.mean, then[current], now[current], learner.settings.sigma)
            node.vectors = [v + by if place < node.older else v for place, v in enumerate(node.vectors)]
    if learner.settings.means == "exemplars":
        for name in {above for node in met for above in tree.lineage(node)}:
            stored = [now[row] for row, node in enumerate(y) if name in tree.lineage(node)]
            if stored:
                nodes[name].vectors, nodes[name].exemplars = stored, True
    for node in nodes.values():
        node.older = len(node.vectors)


@pytest.mark.parametrize("means", ["running", "exemplars"])
def test_steps_by_hand(means: Literal["running", "exemplars"]) -> None:
    settings = IcarlSettings(means=means, every=20, sigma=0.5, ncm_tau=0.2, lr_backbone=1e-3)
    learner = ICaRL(setup(), settings)
    nodes: defaultdict[int, Node] = defaultdict(Node)
    old, met = None, set()
    for number, step in enumerate(steps(learner, stream(9)), 1):  # 8 samples each; the fish come with the fifth
        tree = step.taxonomy
        loss, units = loss_by_hand(step, old)
        assert_step(step, loss)
        assert_remembered(step, learner)
        for node, unit in zip(step.batch.y.tolist(), units, strict=True):
            for above in tree.lineage(node):
                if not nodes[above].exemplars:
                    nodes[above].vectors.append(unit)
        met |= set(step.batch.y.tolist())
        if number * 8 // 20 > (number - 1) * 8 // 20:
            follow_by_hand(learner, nodes, met, old, tree)
            old, met = copy.deepcopy(learner.net), set()
        x, _ = exam()
        unit, p = F.normalize(learner.net(x).features.detach()), learner.predict(x)
        for level in tree.levels:
            expected = torch.stack([nodes[node].mean for node in tree.nodes(level).tolist()])
            torch.testing.assert_close(learner.means.rows[level], expected, rtol=0, atol=1e-5)
            squared = torch.stack([(unit - mean / mean.norm()).square().sum(1) for mean in expected], 1)
            torch.testing.assert_close(p[level], (-squared / 0.2).softmax(1), rtol=0, atol=1e-4)
