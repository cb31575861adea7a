from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.checks import feed, setup, stream
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.registry import method_settings
from dhocl.methods.rm import PERTURBATIONS, RM, Rainbow, RmSettings, choose, cutout, spread, variation_ratio
from dhocl.nn.augment import augment
from dhocl.nn.network import Network
from tests.helpers.reference_replay import (
    Item,
    arriving,
    assert_holds,
    assert_step,
    draws,
    haf,
    late_links,
    learn,
    logits,
    stored,
)

# -- uncertainty -----------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 20), min_size=12, max_size=12), min_size=1, max_size=9))
def test_variation_ratio(votes: list[list[int]]) -> None:
    u = variation_ratio(torch.tensor(votes))
    for row, value in zip(votes, u.tolist(), strict=True):
        assert value == pytest.approx(1 - Counter(row).most_common(1)[0][1] / 12)
        assert round(12 * value, 4) in range(12)
        if len(set(row)) == 1:
            assert value == 0


def test_twelve_perturbations_that_differ_and_leave_the_images_alone() -> None:
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32))).to(torch.uint8)
    kept = x.clone()
    seen = [perturb(x, Rng(0, "learner")) for perturb in PERTURBATIONS]
    assert len(seen) == 12
    for place, changed in enumerate(seen):
        assert changed.shape == x.shape
        assert changed.dtype == torch.uint8
        assert all((changed[i] != x[i]).any() for i in range(5))
        assert not any(torch.equal(changed, other) for other in seen[:place])
    assert torch.equal(x, kept)
    assert any(torch.equal(changed, 255 - x) for changed in seen), "one is the negative"


def test_the_perturbations_by_hand() -> None:
    x, rng = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32)).astype(np.uint8), Rng(0, "learner")
    expected = []
    for side in (8, 16, 24, 32):
        centres = rng.integers(0, 32, 5), rng.integers(0, 32, 5)
        holed = x.copy()
        for image, row, column in itertools.product(range(5), range(32), range(32)):
            if 2 * abs(row - centres[0][image]) < side and 2 * abs(column - centres[1][image]) < side:
                holed[image, :, row, column] = 127
        expected.append(holed)
    turned = x.transpose(0, 1, 3, 2)
    expected += [x[:, :, :, ::-1], x[:, :, ::-1], turned[:, :, ::-1], turned[:, :, :, ::-1]]
    expected += [np.where(x >= threshold, 255 - x, x) for threshold in (0, 32, 64, 128)]
    rng = Rng(0, "learner")
    for perturb, wanted in zip(PERTURBATIONS, expected, strict=True):
        assert np.array_equal(perturb(torch.from_numpy(x), rng).numpy(), wanted)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_cutout_is_a_square_of_its_size_cut_at_the_border(share: float) -> None:
    x = torch.zeros((200, 3, 32, 32), dtype=torch.uint8)
    holes = cutout(x, Rng(0, "learner"), share) != 0
    assert torch.equal(holes[:, 0], holes[:, 1])
    rows, columns = holes[:, 0].any(2), holes[:, 0].any(1)
    assert torch.equal(holes[:, 0], rows[:, :, None] & columns[:, None, :])
    assert abs(int(rows.sum(1).max()) - share * 32) <= 1
    assert (holes[:, 0].sum((1, 2)) > 0).all()
    assert len({tuple(hole.flatten().tolist()) for hole in holes[:, 0]}) > 50, "places are drawn per image"


def test_an_item_is_judged_by_the_votes_at_its_own_level(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = RM(setup(), RmSettings())
    tree = feed(learner, stream(4)).taxonomy
    calls = []

    def predict(x: torch.Tensor) -> dict[int, torch.Tensor]:
        calls.append(len(x))
        widths = tree.widths
        sure, torn = torch.zeros(len(x), widths[0]), torch.zeros(len(x), widths[1])
        sure[:, 0] = 1
        torn[:, len(calls) % 2] = 1
        return {0: sure, 1: torn}

    monkeypatch.setattr(learner, "predict", predict)
    u = learner.uncertainty(tree)
    assert calls == [32] * 12
    levels = [tree.labels[node].level for node in learner.memory.columns["y"][:32].tolist()]
    assert set(levels) == {0, 1}
    assert u.tolist() == [0.5 if level else 0.0 for level in levels]


# -- the choice ------------------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(0, 30), st.integers(0, 99))
def test_spread_goes_from_the_surest_to_the_least_sure_in_even_steps(n: int, k: int, seed: int) -> None:
    u = np.random.default_rng(seed).integers(0, 12, n) / 12
    picked = spread(u, k, np.random.default_rng(seed))
    assert len(set(picked.tolist())) == len(picked) == min(k, len(u))
    if len(picked):
        assert u[picked].min() == u.min()
        # what evenly spaced ranks of the sorted values would be
        ranks = [j * len(u) // max(k, 1) for j in range(k)] if k < len(u) else range(len(u))
        assert sorted(u[picked]) == [sorted(u)[rank] for rank in ranks]


def test_ranks_are_evenly_spaced_also_where_the_quota_does_not_divide() -> None:
    for n, k in [(19, 10), (20, 10), (7, 3), (100, 33)]:
        ranks = np.sort(spread(np.arange(n), k, np.random.default_rng(0)))
        assert np.ptp(np.diff(ranks)) <= 1
        assert ranks[0] == 0
        assert n - ranks[-1] <= -(-n // k), "the least sure end is reached"


def test_ties_are_broken_at_random() -> None:
    picks = [spread(np.zeros(10), 5, np.random.default_rng(seed)) for seed in range(400)]
    counts = np.bincount(np.concatenate(picks), minlength=10)
    assert counts.min() > 140  # 200 expected


@given(st.integers(1, 80), st.integers(0, 40), st.integers(0, 99))
def test_classes_have_their_quota_and_no_place_is_wasted(n: int, capacity: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, u = rng.integers(0, 6, n), rng.integers(0, 12, n) / 12
    levels = np.where(y < 2, 0, 1)  # classes 0 and 1 are the coarse ones
    kept = choose(u, y, levels, capacity, np.random.default_rng(seed))
    assert len(set(kept.tolist())) == len(kept) == min(capacity, n)
    for name in set(y.tolist()):
        level = min(name // 2, 1)
        quota = capacity // len(set(levels.tolist())) // len(set(y[levels == level].tolist()))
        assert (y[kept] == name).sum() >= min(quota, (y == name).sum())
        if quota:
            assert u[kept][y[kept] == name].min() == u[y == name].min()


# -- the memory and the learner --------------------------------------------------------------------------------


def test_only_the_chosen_are_replayed_and_a_restart_keeps_those_that_wait() -> None:
    memory = Rainbow(0, Rng(0, "memory"))
    memory.insert(y=torch.arange(10))
    assert memory.sample(5) == {}
    memory.keep(np.array([2, 3, 7]))
    memory.insert(y=torch.arange(10, 14))
    again = Rainbow(0, Rng(0, "memory"))
    again.load_state_dict(memory.state_dict())
    for one in (memory, again):
        assert one.columns["y"][: one.size].tolist() == [2, 3, 7, 10, 11, 12, 13]
        assert {y for _ in range(20) for y in one.sample(2)["y"].tolist()} == {2, 3, 7}
        assert sorted(one.sample(9)["y"].tolist()) == [2, 3, 7]


def test_chooses_every_so_many_samples_and_stores_no_more_than_it_says() -> None:
    learner, curator, came = RM(setup(buffer=20), RmSettings(every=24)), None, 0
    for x, labels in stream(20):
        before = learner.memory.chosen
        curator = feed(learner, [(x, labels)], curator)
        came += len(x)
        if came % 24 == 0:
            assert learner.memory.size == learner.memory.chosen == min(20, came)
        else:
            assert learner.memory.chosen == before
            assert learner.memory.size == before + came % 24
        assert learner.memory.size <= 20 + 24


@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_goes_over_the_memory_after_a_choice(epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, trained = RM(setup(buffer=20), RmSettings(every=40, memory_epochs=epochs)), []
    loss = learner.loss
    monkeypatch.setattr(learner, "loss", lambda batches, tree: (trained.append(batches), loss(batches, tree))[1])
    feed(learner, stream(5))
    assert all(len(batches) == 1 for batches in trained), "nothing was replayed before the first choice"
    over = trained[5:]
    assert [len(batch.y) for (batch,) in over] == [12, 8] * epochs
    held = sorted(x.numpy().tobytes() for x in learner.memory.columns["x"][:20])
    for start in range(0, len(over), 2):
        assert sorted(x.numpy().tobytes() for (batch,) in over[start : start + 2] for x in batch.x) == held


def test_the_choice_follows_the_uncertainty(monkeypatch: pytest.MonkeyPatch) -> None:
    """One class, half of whose items are unsure: kept are as many of either kind, not the sure or unsure ones alone."""
    learner = RM(setup(buffer=10), RmSettings(every=40, memory_epochs=0))
    unsure = torch.arange(40) % 2 * 0.75
    monkeypatch.setattr(learner, "uncertainty", lambda taxonomy: unsure)
    batches = [(x, [labels[0]._replace(name="bird", level=0)] * 8) for x, labels in stream(5)]
    numbers = {x.numpy().tobytes(): i for i, x in enumerate(torch.cat([x for x, _ in batches]))}
    feed(learner, batches)
    kept = [numbers[x.numpy().tobytes()] for x in learner.memory.columns["x"][:10]]
    assert Counter(i % 2 for i in kept) == {0: 5, 1: 5}


# -- the whole step --------------------------------------------------------------------------------------------


def unsure_by_hand(net: Network, held: list[Item], tree: Taxonomy, rng: Rng) -> list[float]:
    x, y = stored(held, range(len(held)))
    votes: list[list[int]] = [[] for _ in held]
    for perturb in PERTURBATIONS:
        with torch.no_grad():
            z = logits(net, perturb(x, rng))
        for row, node in enumerate(y):
            votes[row].append(int(z[tree.labels[node].level][row].argmax()))
    return [1 - Counter(own).most_common(1)[0][1] / 12 for own in votes]


def chosen_by_hand(u: list[float], held: list[Item], buffer: int, tree: Taxonomy, rng: Rng) -> list[Item]:
    """Levels share the buffer evenly, as do the classes of a level; inside a class, even steps from sure to unsure."""
    kept = set[int]()
    levels = sorted({tree.labels[item.y].level for item in held})
    for level in levels:
        names = sorted({item.y for item in held if tree.labels[item.y].level == level})
        quota = buffer // len(levels) // len(names)
        for name in names:
            own = [i for i, item in enumerate(held) if item.y == name]
            ties = dict(zip(own, rng.random(len(own)), strict=True))
            own.sort(key=lambda i: (u[i], ties[i]))
            kept |= {own[j * len(own) // quota] for j in range(quota)} if len(own) > quota else set(own)
    rest = [i for i in range(len(held)) if i not in kept]
    kept |= set(rng.choice(rest, buffer - len(kept), replace=False).tolist())
    return [held[i] for i in sorted(kept)]


@pytest.mark.parametrize("epochs", [1, 4])
def test_a_step_replays_the_chosen_and_a_choice_is_followed_by_epochs_over_them(epochs: int) -> None:
    settings = method_settings("rm", {"every": "24", "memory_epochs": str(epochs)})
    learner = RM(setup(buffer=20, replay_batch=4), settings)  # type: ignore[arg-type]
    rng, held, chosen, unsure = draws(), list[Item](), 0, set[float]()
    history = learn(learner, stream(10), late_links())
    for seen, (batch, tree, steps, stats) in zip(range(0, 80, 8), history, strict=True):
        slots = rng.choice(chosen, 4, replace=False, shuffle=False) if chosen else []
        loss = haf(steps[0].before, augment(batch.x, rng, flip=True), batch.y.tolist(), tree)
        if chosen:
            x, y = stored(held, slots)
            loss = loss + haf(steps[0].before, augment(x, rng, flip=True), y, tree)
        assert_step(steps[0], loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
        held += arriving(batch, seen)
        rounds = iter(steps[1:])
        if (seen + 8) % 24 == 0:
            u = unsure_by_hand(steps[0].after, held, tree, rng)
            unsure |= set(u)
            held = chosen_by_hand(u, held, 20, tree, rng)
            chosen = 20
            for _ in range(epochs):
                order = rng.permutation(20)
                for part in (order[:12], order[12:]):
                    x, y = stored(held, part)
                    step = next(rounds)
                    assert_step(step, haf(step.before, augment(x, rng, flip=True), y, tree))
        assert next(rounds, None) is None
    assert len(unsure) > 3, "the choices had something to go by"
    assert_holds(learner, held)


@pytest.mark.parametrize(("samples", "choices"), [(80, list(range(8, 81, 8))), (None, [])])
def test_chooses_ten_times_a_stream(samples: int | None, choices: list[int]) -> None:
    learner, found = RM(setup()._replace(samples=samples), RmSettings()), []
    learner.refresh = lambda taxonomy: found.append(learner.memory.seen)  # type: ignore[method-assign]
    feed(learner, stream(10))
    assert found == choices
