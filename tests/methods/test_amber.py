"""AMBER against a slow recomputation, sample by sample; its window, gate and balance; revisions of the tree."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dhocl.checks import LEAVES, assert_same, assert_valid, exam, feed, pictures, setup, stream, true_tree
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.knowledge import Curator, Oracle
from dhocl.methods.amber import Amber, AmberSettings
from dhocl.nn.heads import ridge, window
from dhocl.nn.heads.balance import balance
from dhocl.nn.heads.reliability import path_scores
from dhocl.nn.learner import Batch
from tests.helpers.slow_amber import Sample, Slow
from tests.helpers.trees import balanced_tree
from tests.helpers.vectors import vector_setup

PLAIN = AmberSettings(completion="never", mirror=False, calibration=0, doubt=False, adapt=False)


def quick_outputs(learner: Amber, x: Tensor) -> dict[int, Tensor]:
    """Before the levels are combined."""
    solution = learner._solved()
    return {level: readout(learner.features(x)) for level, readout in solution.readouts.items()}


@pytest.mark.parametrize(("waiting", "few"), [(10, 1.0), (100, 1.0), (10, 0.0)])
def test_it_equals_a_slow_recomputation(waiting: int, few: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several levels, a class without a place, completions that change until a sample leaves the window.

    With weights that are solved, and without.
    """
    monkeypatch.setattr(ridge, "FEW", few)
    settings = dataclasses.replace(PLAIN, window=waiting, refresh=16, completion="always", recency=5.0)
    learner, tree, rng = Amber(setup(), settings), balanced_tree(2, 2, 2), np.random.default_rng(0)
    loose = tree.add(Label("loose", 2))
    slow = Slow(learner)
    for step in range(7):
        nodes = torch.from_numpy(rng.choice([*range(2 * (step % 2), len(tree) - 1, 2), loose], 8))
        x = pictures(rng.integers(0, 4, 8).tolist(), rng)
        learner.learn(Batch(x, nodes), tree)
        slow.learn(x, nodes, tree)
        if step == 4:
            tree.link(loose, 2)  # late
    expected = slow.outputs(exam()[0], tree)
    learner.tree.known = TreeTable.of(tree)
    for level, z in quick_outputs(learner, exam()[0]).items():
        torch.testing.assert_close(z, expected[level], rtol=1e-3, atol=2e-4)
    assert learner.window.advantage == pytest.approx(slow.advantage, rel=1e-3, abs=1e-3)
    assert any(q.sum() > 0 for q in learner.window.targets.values())
    assert (learner.window.checked, learner.window.right) == (len(slow.found), sum(slow.found))
    assert 0 < sum(slow.found) < len(slow.found)
    assert learner.window.stats()["found_again"] == sum(slow.found) / len(slow.found)


def test_soft_targets_reach_the_prediction_from_the_window_and_after_it() -> None:
    """Without them the outputs differ: the test above can not pass by leaving them out on both sides."""
    found = {}
    for completion in ("always", "never"):
        for waiting in (4, 1000):
            settings = AmberSettings(window=waiting, refresh=8, completion=completion, calibration=0)
            learner = Amber(setup(), settings)
            feed(learner, stream(12))
            found[completion, waiting] = quick_outputs(learner, exam()[0])[1]
    assert not torch.allclose(found["always", 4], found["never", 4], atol=1e-3)
    assert not torch.allclose(found["always", 1000], found["never", 1000], atol=1e-3)
    assert torch.equal(found["never", 4], found["never", 1000])


# -- parts ---------------------------------------------------------------------------------------------------------


def test_balance_compares_the_share_of_leaves_with_the_share_of_samples() -> None:
    N, leaves = torch.tensor([6.0, 2.0, 0.0]), torch.tensor([0, 0, 1, -1])
    share = torch.tensor([6.0, 2.0, 0.5]) / 8.5
    wanted = torch.tensor([2.0, 1.0, 1.0]) / 4
    torch.testing.assert_close(balance(N, leaves, 0.5), (wanted / share) ** 0.5)
    assert balance(N, leaves, 0.0).tolist() == [1, 1, 1]
    assert balance(torch.tensor([1e6, 0.0]), torch.tensor([0, 1]), 1.0)[1] == 100


def drifting(learner: Amber, drift: bool = True) -> Amber:
    """A root and 8 classes: two at a time, or all at random."""
    tree, rng = balanced_tree(1, 8), np.random.default_rng(0)
    for step in range(20):
        nodes = rng.choice([0, 1 + step % 8 // 2], 16) if drift else rng.integers(0, 9, 16)
        learner.learn(Batch(pictures(rng.integers(0, 4, 16).tolist(), rng), torch.from_numpy(nodes)), tree)
    return learner


def test_completion_waits_until_recency_explains_the_labels() -> None:
    early, late, always = (
        drifting(Amber(setup(), AmberSettings(calibration=0, **change)))
        for change in ({}, {"margin": 1e9}, {"margin": 1e9, "completion": "always"})
    )
    assert early.window.advantage == late.window.advantage > early.settings.margin
    assert late.window.targets == {}
    for learner in (early, always):
        assert learner.window.targets[1].sum() > 0


def test_a_stream_without_drift_does_not_open_the_gate() -> None:
    learner = drifting(Amber(setup(), AmberSettings(calibration=0)), drift=False)
    assert learner.window.advantage < 0
    assert learner.window.targets == {}


def test_the_window_holds_the_last_samples() -> None:
    learner = Amber(setup(), AmberSettings(window=20, refresh=8, calibration=0))
    curator = feed(learner, stream(10))
    assert len(learner.window.y) == 20
    assert learner.window.recent.tolist()[-20:] == learner.window.y.tolist()
    x, labels = stream(10)[-1]
    torch.testing.assert_close(learner.window.phi[-8:], learner.features(x))
    assert learner.window.y[-8:].tolist() == [curator.taxonomy.id(label) for label in labels]


def test_few_labels_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "RECENT", 12)
    learner = Amber(setup(), AmberSettings(calibration=0))
    feed(learner, stream(5))
    assert len(learner.window.recent) == 12
    assert learner.window.recent_times.tolist() == list(range(28, 40))


def test_it_completes_often_at_first_and_rarely_in_a_long_stream() -> None:
    learner, refreshed = Amber(setup(), AmberSettings(refresh=16, window=24, calibration=0)), []
    curator = Curator(Oracle(balanced_tree(2)))
    for x, labels in stream(120):
        feed(learner, [(x, labels)], curator)
        refreshed.append(learner.window.seen - learner.window.new)
    assert refreshed[:10] == [8, 16, 24, 32, 40, 48, 56, 64, 72, 72]
    assert refreshed[18:24] == [152, 152, 168, 168, 184, 184]  # every `refresh`
    assert refreshed[66:72] == [536, 536, 552, 552, 552, 576]  # a thirty-second of the stream is more
    assert refreshed[-6:] == [912, 912, 936, 936, 936, 960]  # at most `window`


def remembered(learner: Amber, steps: int) -> tuple[Slow, Taxonomy]:
    """Feed a learner, and keep all of its samples."""
    slow, batches = Slow(learner), stream(steps)
    tree = feed(learner, batches).taxonomy
    for x, labels in batches:
        nodes = [tree.id(label) for label in labels]
        slow.samples += [Sample(*pair) for pair in zip(learner.features(x), nodes, strict=True)]
    return slow, tree


def fine(slow: Slow, tree: Taxonomy) -> list[int]:
    return [i for i, sample in enumerate(slow.samples) if tree.labels[sample.node].level == 1]


def scales(slow: Slow, tree: Taxonomy) -> dict[int, Tensor]:
    """(C,) factors of the balance, per level."""
    x, _ = exam()
    plain = {level: slow.learner.features(x) @ slow.weights(tree, level, {}).t() for level in tree.levels}
    return {level: (z / plain[level])[0] for level, z in slow.outputs(x, tree).items()}


def test_reliabilities_are_fitted_to_leaves_as_if_they_had_not_been_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, seen = Amber(setup(), AmberSettings(completion="never", adapt=False)), []
    fit = learner.reliability.fit
    monkeypatch.setattr(learner.reliability, "fit", lambda z, y, *rest: (seen.append((z, y)), fit(z, y, *rest)))
    slow, tree = remembered(learner, 6)
    z, y = seen[-1]
    assert y.tolist() == [slow.samples[i].node for i in fine(slow, tree)]
    factors = scales(slow, tree)
    for row, i in list(enumerate(fine(slow, tree)))[::5]:
        for level in tree.levels:
            without = slow.weights(tree, level, {}, without=i) @ slow.samples[i].phi
            torch.testing.assert_close(z[level][row], without * factors[level], rtol=1e-2, atol=1e-3)


def test_penalties_learn_from_the_likelihood_of_leaves_that_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against differences: the penalty of a part is changed a little, and each leaf predicted without its sample."""
    learner, seen = Amber(setup(), AmberSettings(completion="never", mirror=False)), {}
    monkeypatch.setattr(learner.penalties, "learn", lambda slopes, level: seen.update({level: slopes}))
    slow, tree = remembered(learner, 6)
    factors, leaves = scales(slow, tree), TreeTable.of(tree).leaves
    beta = torch.tensor([learner.reliability.beta(level) for level in tree.levels])

    def loss(i: int) -> Tensor:
        phi = slow.samples[i].phi
        z = {h: (slow.weights(tree, h, {}, without=i) @ phi)[None] * factors[h] for h in tree.levels}
        return -path_scores(z, beta, leaves, {}).log_softmax(1)[0, tree.column(slow.samples[i].node)]

    for row, i in list(enumerate(fine(slow, tree)))[::9]:
        for level in tree.levels:
            for place, slopes in enumerate(seen[level][row].split(learner.features.widths)):
                slow.factors = {(level, place): math.exp(0.1)}
                up = loss(i)
                slow.factors = {(level, place): math.exp(-0.1)}
                assert float(slopes.sum()) == pytest.approx(float(up - loss(i)) / 0.2, rel=0.05, abs=2e-4)


def test_probabilities_are_those_of_the_reliabilities() -> None:
    learner = Amber(setup(), AmberSettings())
    feed(learner, stream(10))
    x, _ = exam()
    assert learner.reliability.log_beta
    expected = learner.reliability.probabilities(quick_outputs(learner, x), learner.tree.known.leaves, {})
    for level, p in learner.predict(x).items():
        torch.testing.assert_close(p, expected[level])


def test_foresight_may_lag_and_prediction_may_not() -> None:
    learner, x = Amber(setup(), AmberSettings(refresh=64)), exam()[0]
    batches = stream(24)
    curator = feed(learner, batches[:20])
    kept = learner.foresee(x)
    feed(learner, batches[20:22], curator)  # 16 samples, of 160
    learner.predict(x)
    assert_same(learner.foresee(x), kept, "")
    lagging = learner.reader(lagging=True)
    fresh = learner.reader()
    assert_same(lagging.predict(x), kept, "")
    assert_same(fresh.predict(x), learner.predict(x), "")
    assert not torch.equal(learner.predict(x)[1], kept[1])
    feed(learner, batches[22:], curator)
    assert_same(lagging.predict(x), kept, "")  # though the statistics, which it shares, have more samples


def test_foresight_is_the_same_after_a_restart_and_whatever_else_is_predicted() -> None:
    first, second = Amber(setup(), AmberSettings(refresh=64)), Amber(setup(), AmberSettings(refresh=64))
    batches, curators = stream(24), (Curator(Oracle(true_tree())), Curator(Oracle(true_tree())))
    lagged = 0
    for step, (x, labels) in enumerate(batches):
        if step:
            a, b = first.foresee(x), second.foresee(x)
            assert all(torch.equal(a[level], b[level]) for level in a)
        for learner, curator in zip((first, second), curators, strict=True):
            feed(learner, [(x, labels)], curator)
        if step % 5 == 3:
            lagged += second._behind > 0
            state, second = second.state_dict(), Amber(setup(), AmberSettings(refresh=64))
            second.load_state_dict(state)
            first.predict(x)
            first.reader(lagging=True)
    assert lagged, "some restarts came between two solutions"


def test_foresight_knows_the_first_classes_at_once() -> None:
    learner, x = Amber(setup(), AmberSettings()), exam()[0]
    learner.reader()  # solved without a class
    curator = feed(learner, stream(1))
    assert {level: p.shape[1] for level, p in learner.foresee(x).items()} == curator.taxonomy.widths


def test_the_network_is_passed_once_for_foresight_and_learning() -> None:
    prepared = setup()
    learner = Amber(prepared, AmberSettings(mirror=False))
    x, labels = stream(1)[0]
    feed(learner, [(x, labels)])
    again = x.clone()
    worked = prepared.backbone.meter.pixels
    learner.foresee(again)
    feed(learner, [(again, labels)], Curator(Oracle(balanced_tree(1))))
    assert prepared.backbone.meter.pixels - worked == len(x) * 32 * 32


def test_a_class_without_a_link_counts_where_its_images_place_it() -> None:
    """Robins without a link look like birds. So a robin among fish is still a bird."""
    tree = balanced_tree(3)
    robin, carp = tree.add(Label("robin", 1)), tree.add(Label("carp", 1))
    tree.link(carp, 1)
    learner, rng = Amber(vector_setup(5), dataclasses.replace(PLAIN, gamma=0.1)), np.random.default_rng(0)

    def seen(*strengths: float) -> Tensor:
        """(8, 5, 1, 1)"""
        return torch.from_numpy(strengths + rng.normal(0, 0.05, (8, 5))).float()[:, :, None, None]

    shown = {
        0: (1, 0, 0, 0, 0),
        1: (0, 1, 0, 0, 0),
        2: (0, 0, 1, 0, 0),
        robin: (1, 0, 0, 1, 0),
        carp: (0, 1, 0, 0, 1),
    }
    for node, strengths in shown.items():
        learner.learn(Batch(seen(*strengths), torch.full((8,), node)), tree)
    odd = seen(0.8, 1, 0, 1, 0)
    assert learner.predict(odd)[1].argmax(1).tolist() == [0] * 8, "a robin"
    assert learner.predict(odd)[0].argmax(1).tolist() == [0] * 8
    assert quick_outputs(learner, odd)[0].argmax(1).tolist() == [1] * 8, "the outputs of its level alone say otherwise"


def test_stored_samples_are_left_out_as_much_as_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two thirds of the fine labels have no coarse class, the Gram matrix of that level has a third of each."""
    tree, rng = balanced_tree(2, 2), np.random.default_rng(0)
    loose = tree.add(Label("loose", 1))
    learner = Amber(vector_setup(6), dataclasses.replace(PLAIN, gamma=0.05, balance=0.0, calibration=64))
    y = torch.tensor([2, 3, 4, 5] + 8 * [loose])
    learner.learn(Batch(torch.from_numpy(rng.normal(size=(12, 6, 1, 1))).float(), y), tree)
    given: list[dict[int, Tensor]] = []
    monkeypatch.setattr(learner.reliability, "fit", lambda z, *_: given.append(z))
    table = learner.tree.trusted
    learner._fit(table)
    A, M, _ = learner._system(0, table)
    phi, labels = learner.memory.columns["phi"][:12], learner.memory.nodes
    assert (phi * torch.linalg.solve(A + 0.05 * torch.eye(6), phi.t()).t()).sum(1).max() > 1, "not a third: below 0"
    for own, node, z in zip(phi, labels.tolist(), given[0][0], strict=True):
        if node != loose:
            rest = A - own.outer(own) / 3 + 0.05 * torch.eye(6)
            without = M.index_add(0, table.columns(torch.tensor([node]), 0), -own[None])
            torch.testing.assert_close(z, without @ torch.linalg.solve(rest, own), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("mirror", "flip", "passes"), [(True, True, 2), (True, False, 1), (False, True, 1)])
def test_images_are_mirrored_only_where_that_keeps_the_class(mirror: bool, flip: bool, passes: int) -> None:
    prepared = setup()._replace(flip=flip)
    learner, (x, labels) = Amber(prepared, AmberSettings(mirror=mirror)), stream(1)[0]
    worked = prepared.backbone.meter.pixels
    feed(learner, [(x, labels)])
    assert prepared.backbone.meter.pixels - worked == passes * len(x) * 32 * 32


def test_a_link_that_the_images_contradict_is_left_out_until_it_is_mended() -> None:
    """Kinds that look like their colour; a quarter of them is linked below the wrong group."""
    tree, rng = balanced_tree(4, 3), np.random.default_rng(0)
    kinds = [(child, tree.column(tree.parent(child))) for child in tree.nodes(1).tolist()]
    kinds += [(group, group) for group in range(4) for _ in range(3)]
    strays = {child: (tree.parent(child) + 1) % 4 for child in tree.nodes(1).tolist()[::4]}
    for stray, parent in strays.items():
        tree.link(stray, parent)
    learner = Amber(setup(), AmberSettings(completion="never"))

    def learn(steps: int) -> None:
        for _ in range(steps):
            nodes, colours = zip(*(kinds[k] for k in rng.integers(0, len(kinds), 16)), strict=True)
            learner.learn(Batch(pictures(colours, rng), torch.tensor(nodes)), tree)

    learn(40)
    assert learner.tree.doubted == strays
    stray, parent = next(iter(strays.items()))
    assert learner.tree.trusted.columns(torch.tensor([stray]), 0).tolist() == [-1]
    x = pictures([0] * 20, rng)
    assert (learner.predict(x)[0].argmax(1) == 0).double().mean() > 0.9
    tree.link(stray, (parent + 3) % 4)
    learn(1)
    assert learner.tree.trusted.columns(torch.tensor([stray]), 0).tolist() == [(parent + 3) % 4]


def test_links_that_never_come_leave_levels_to_themselves() -> None:
    learner = Amber(setup(), AmberSettings(refresh=8, completion="always"))
    curator = feed(learner, stream(8), Curator(Oracle(Taxonomy()), math.inf))
    assert_valid(learner.predict(exam()[0]), curator.taxonomy, 40)
    assert all(q.sum() == 0 for q in learner.window.targets.values())


def test_it_learns_and_separates_the_leaves() -> None:
    learner = Amber(setup(), AmberSettings())
    tree = feed(learner, stream(30)).taxonomy
    x, leaves = exam()
    names = [tree.labels[node].name for node in tree.nodes(1).tolist()]
    predicted = [LEAVES.index(names[column]) for column in learner.predict(x)[1].argmax(1).tolist()]
    assert (torch.tensor(predicted) == leaves).double().mean() > 0.9


def test_every_setting_changes_the_prediction() -> None:
    """A setting that is ignored would leave it as it is."""
    base: dict[str, Any] = {"refresh": 8, "completion": "always", "window": 16}
    x, _ = exam()

    def outputs(**change: Any) -> Tensor:
        learner = Amber(setup(), AmberSettings(**base | change))
        feed(learner, stream(14))
        return learner.predict(x)[1]

    usual = outputs()
    for field, value in {
        "gamma": 5.0,
        "adapt": False,
        "stages": 0.0,
        "side": 2.0,
        "mirror": False,
        "balance": 0.0,
        "completion": "never",
        "window": 60,
        "recency": 2.0,
        "refresh": 32,
        "calibration": 0,
    }.items():
        assert field in {f.name for f in dataclasses.fields(AmberSettings)}
        assert not torch.equal(outputs(**{field: value}), usual), field
