from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.checks import feed, passes, setup, stream, true_tree
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.onpro import (
    OnPro,
    OnProSettings,
    class_means,
    equilibrium,
    instance_contrast,
    level_equilibrium,
    mixed_ce,
)
from dhocl.nn.augment import random_grayscale, resized_crop
from dhocl.nn.learner import Batch, Setup
from dhocl.nn.losses import multi_ce, supcon
from tests.helpers.reference_others import arriving, assert_same_state, assert_same_steps, path, twins, watched
from tests.helpers.tensors import unit

T = 0.5


# -- online prototype equilibrium ------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 7])
def test_equilibrium_of_identical_prototypes(k: int) -> None:
    same = unit(1, 16).expand(k, 16)
    assert equilibrium(same, same, T).item() == pytest.approx(math.log(2 * k - 1), abs=1e-5)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_equilibrium_of_orthogonal_prototypes_that_agree(k: int) -> None:
    axes = 3 * torch.eye(k, 16)  # their length is of no matter
    expected = math.log(1 + (2 * k - 2) * math.exp(-1 / T))
    assert equilibrium(axes, axes, T).item() == pytest.approx(expected, abs=1e-5)


def test_equilibrium_of_one_class_is_nothing() -> None:
    assert equilibrium(unit(1, 8), unit(1, 8, seed=1), T).item() == pytest.approx(0, abs=1e-6)
    targets = torch.tensor([[0, -1], [0, 3], [0, 3]])
    assert level_equilibrium(unit(3, 8), unit(3, 8, seed=1), targets, T).item() == 0


def test_equilibrium_by_the_definition_and_in_any_order_of_classes() -> None:
    a, b = unit(4, 8), unit(4, 8, seed=1)
    both = [*a, *b]
    total = 0.0
    for i, z in enumerate(both):
        others = [math.exp(float(z @ other) / T) for j, other in enumerate(both) if j != i]
        total -= math.log(math.exp(float(z @ both[(i + 4) % 8]) / T) / sum(others))
    assert equilibrium(a, b, T).item() == pytest.approx(total / 8, abs=1e-5)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(equilibrium(a[order], b[order], T), equilibrium(a, b, T))


def test_equilibrium_is_a_mean_over_levels_with_two_classes() -> None:
    a, b = unit(4, 8), unit(4, 8, seed=1)
    fine = torch.tensor([5, 2, -1, 5])
    one_level = level_equilibrium(a, b, fine[:, None], T)
    with_a_dull_one = level_equilibrium(a, b, torch.stack([torch.zeros(4, dtype=torch.long), fine], 1), T)
    torch.testing.assert_close(one_level, with_a_dull_one)
    other = torch.tensor([0, 1, 1, 0])
    mean = (one_level + level_equilibrium(a, b, other[:, None], T)) / 2
    torch.testing.assert_close(level_equilibrium(a, b, torch.stack([other, fine], 1), T), mean)
    changed = a.clone()
    changed[2] = -a[0]  # it has no class at the fine level
    torch.testing.assert_close(level_equilibrium(changed, b, fine[:, None], T), one_level)


def test_class_means() -> None:
    z = unit(5, 3)
    classes, means = class_means(z, torch.tensor([4, -1, 4, 0, -1]))
    assert classes.tolist() == [0, 4]
    torch.testing.assert_close(means, torch.stack([z[3], (z[0] + z[2]) / 2]))


# -- instance contrast -----------------------------------------------------------------------------------------


def test_contrast_of_plain_similarities_is_supcon() -> None:
    z, labels = unit(7, 8), torch.tensor([0, 1, 0, 2, 2, 1, 0])
    torch.testing.assert_close(instance_contrast(z @ z.t() / 0.07, labels), supcon(z, labels, 0.07))


def test_labels_are_node_and_turn() -> None:
    learner = OnPro(setup(), OnProSettings(rotations=4))
    y = torch.tensor([3, 0, 3])
    n = 2 * 4 * 3
    features, z = torch.rand(n, 64, generator=torch.Generator().manual_seed(2)), unit(n, 64)
    part = torch.nn.functional.normalize(features)  # as wide as the projection: the slice is all of it
    labels = [(node, turn) for _ in range(2) for turn in range(4) for node in y.tolist()]
    total = 0.0
    for i in range(n):
        s = [float(z[i] @ (z[j] + part[j])) / 0.07 for j in range(n)]
        others = [j for j in range(n) if j != i]
        norm = math.log(sum(math.exp(s[j]) for j in others))
        positives = [j for j in others if labels[j] == labels[i]]
        total -= sum(s[j] - norm for j in positives) / len(positives)
    assert learner.instance(features, z, y).item() == pytest.approx(total / n, rel=1e-4)


def test_the_projection_is_compared_with_a_random_slice_of_the_features() -> None:
    learner, y = OnPro(setup(), OnProSettings()), torch.tensor([0, 1, 0])
    learner.prototypes.width = 16  # of 64 features
    features, z = torch.rand(6, 64, generator=torch.Generator().manual_seed(2)), unit(6, 16)
    twin, starts = OnPro(setup(), OnProSettings()).rng, set()
    for _ in range(3):
        starts.add(start := int(twin.integers(64 - 16 + 1)))
        part = F.normalize(features)[:, start : start + 16]
        expected = instance_contrast(z @ z.t() / 0.07 + z @ part.t() / 0.07, y.repeat(2))
        torch.testing.assert_close(learner.instance(features, z, y), expected)
    assert len(starts) > 1


# -- feedback and mixing ---------------------------------------------------------------------------------------


def test_mixed_cross_entropy() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = {0: torch.randn(3, 2, generator=generator), 1: torch.randn(3, 4, generator=generator)}
    first, second = torch.tensor([[0, 1], [1, -1], [0, -1]]), torch.tensor([[1, -1], [1, 3], [0, -1]])
    torch.testing.assert_close(mixed_ce(logits, first, first, torch.full((3,), 0.3)), multi_ce(logits, first))
    share = torch.tensor([0.25, 0.5, 0.1])
    nll = {level: -z.log_softmax(1) for level, z in logits.items()}
    coarse = (0.75 * nll[0][0, 0] + 0.25 * nll[0][0, 1] + nll[0][1, 1] + nll[0][2, 0]) / 3
    fine = (0.75 * nll[1][0, 1] + 0.5 * nll[1][1, 3]) / 2
    torch.testing.assert_close(mixed_ce(logits, first, second, share), coarse + fine)


def learned(**settings: float) -> tuple[OnPro, object]:
    learner = OnPro(setup(buffer=40, replay_batch=20), OnProSettings(**settings))
    curator = feed(learner, stream(8))
    return learner, curator.taxonomy


def test_chances_are_softmax_of_inverse_distances_inside_a_level() -> None:
    learner, tree = OnPro(setup(), OnProSettings()), true_tree()
    z = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0.6, 0.8]])
    targets = torch.tensor([[0, 0], [0, 1], [1, 2], [-1, 3]])
    learner.prototypes.observe(z, targets, tree)
    stored = torch.tensor([[0, 0], [0, 1], [1, 2]])  # the last fine class is not stored
    pairs, chances = learner.prototypes.pairs(stored, tree)
    assert pairs.tolist() == [[0, 0, 1], [1, 0, 1], [1, 0, 2], [1, 1, 2]]
    distances = [math.dist((0.5, 0.5), (-1, 0)), math.sqrt(2), 2, math.sqrt(2)]
    weights = np.exp(1 / np.array(distances))
    assert np.allclose(chances.numpy(), weights / weights.sum())


def test_identical_prototypes_do_not_explode() -> None:
    learner, tree = OnPro(setup(), OnProSettings()), true_tree()
    learner.prototypes.observe(torch.ones(3, 2), torch.tensor([[0, 0], [0, 1], [1, 2]]), tree)
    _, chances = learner.prototypes.pairs(torch.tensor([[0, 0], [0, 1], [1, 2]]), tree)
    assert torch.allclose(chances, torch.full((4,), 0.25, dtype=torch.double))


def test_without_a_say_of_the_prototypes_it_is_random_mixup() -> None:
    learner, taxonomy = learned(base_rate=1.0, mixup=1.0)
    slots = learner.memory.draw(20)
    first, second, share = learner.mix(slots, taxonomy)
    own = learner.items(np.sort(slots))
    for side in (first, second):
        assert sorted(side.x.flatten(1).sum(1).tolist()) == sorted(own.x.flatten(1).sum(1).tolist())
    assert not torch.equal(first.x, second.x)
    assert share.min() >= 0
    assert 0.3 < share.max() <= 0.6
    learner, taxonomy = learned(base_rate=1.0, mixup=0.0)
    first, second, _ = learner.mix(slots, taxonomy)
    assert torch.equal(first.x, second.x)


def test_with_all_say_every_mix_is_of_two_classes_of_a_level_as_often_as_their_chance() -> None:
    learner, taxonomy = learned(base_rate=0.0)
    stored = taxonomy.complete(learner.memory.columns["y"][: learner.memory.size])
    pairs, chances = learner.prototypes.pairs(stored, taxonomy)
    counts = torch.zeros(len(pairs))
    for _ in range(60):
        first, second, _ = learner.mix(np.arange(20), taxonomy)
        a, b = taxonomy.complete(first.y), taxonomy.complete(second.y)
        fits = (a[:, pairs[:, 0]] == pairs[:, 1]) & (b[:, pairs[:, 0]] == pairs[:, 2])  # (20, P)
        assert fits.any(1).all()
        counts += fits.float().mean(0)
    fine = pairs[:, 0] == 1
    assert (counts[fine] / 60 > 0.5 * chances[fine]).all(), "each pair is drawn about as often as it should"


def test_shares_of_the_replayed_batch() -> None:
    learner, taxonomy = learned(base_rate=0.9, mixup=0.0)
    alone = 0
    for _ in range(20):
        first, second, _ = learner.mix(learner.memory.draw(20), taxonomy)
        alone += (first.x == second.x).flatten(1).all(1).sum().item()
    assert alone == 20 * 18


# -- the whole -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rotations", "times"), [(1, 3), (4, 9)])
def test_cost_in_steps_of_replay(rotations: int, times: int) -> None:
    def units(make: Callable[[Setup], ER]) -> int:
        given = setup()
        feed(make(given), stream(3))
        return passes(given.backbone)

    ours = units(lambda given: OnPro(given, OnProSettings(rotations=rotations)))
    assert ours == times * units(lambda given: ER(given, ReplaySettings()))


@pytest.mark.parametrize(("rate", "still"), [("lr_heads", "projection"), ("lr_backbone", "backbone")])
def test_the_projection_is_trained_at_the_rate_of_the_heads(rate: str, still: str) -> None:
    before, learner = OnPro(setup(), OnProSettings()), OnPro(setup(), OnProSettings(**{rate: 0.0}))
    feed(learner, stream(2))
    moved = {
        "projection": not torch.equal(before.prototypes._linear.weight, learner.prototypes._linear.weight),
        "backbone": any(
            not torch.equal(p, q) for p, q in zip(before.net.f.parameters(), learner.net.f.parameters(), strict=True)
        ),
    }
    assert moved == {"projection": still != "projection", "backbone": still != "backbone"}


# -- a step recomputed -----------------------------------------------------------------------------------------


def reference_mix(twin: OnPro, slots: np.ndarray, tree: Taxonomy) -> tuple[list[int], list[int], np.ndarray, int]:
    """Slots of the first and of the second images, shares of the second, and how many pairs the feedback drew."""
    rng, stored = twin.rng, [path(tree, node) for node in twin.memory.nodes.tolist()]
    pairs, weights = [], []
    for place, level in enumerate(tree.levels):
        last = twin.prototypes.state_dict()["last"].get(str(level))
        if last is None:
            continue
        means = dict(zip(last["classes"].tolist(), last["means"].double(), strict=True))
        known = [column for column in means if any(row[place] == column for row in stored)]
        for i, a in enumerate(known):
            for b in known[i + 1 :]:
                pairs.append((place, a, b))
                weights.append(math.exp(1 / max(0.1, (means[a] - means[b]).norm().item())))
    n = len(slots)
    base = int(0.9 * n) if pairs else n
    first = list(rng.permutation(slots)[:base])
    mixed = rng.random(base) < 0.2
    others = rng.permutation(first)
    second = [other if mix else own for own, other, mix in zip(first, others, mixed, strict=True)]
    for _ in range(n - base):
        place, a, b = pairs[rng.choice(len(pairs), p=np.array(weights) / sum(weights))]
        first.append(rng.choice([slot for slot, row in enumerate(stored) if row[place] == a]))
        second.append(rng.choice([slot for slot, row in enumerate(stored) if row[place] == b]))
    return first, second, rng.uniform(0, 0.6, n).astype(np.float32), n - base


def slow_mixed_ce(
    logits: dict[int, Tensor], first: list[list[int]], second: list[list[int]], share: list[float]
) -> Tensor:
    total = torch.zeros(())
    for place, z in enumerate(logits.values()):
        rows = [i for i in range(len(first)) if first[i][place] >= 0 or second[i][place] >= 0]
        for i in rows:
            for column, weight in ((first[i][place], 1 - share[i]), (second[i][place], share[i])):
                if column >= 0:
                    total = total + weight * F.cross_entropy(z[i], torch.tensor(column)) / len(rows)
    return total


def slow_contrast(features: Tensor, z: Tensor, labels: list[tuple[int, int]], start: int) -> Tensor:
    """-log of the share of each positive among all others, mean over positives, mean over rows."""
    width, total = z.shape[1], torch.zeros(())
    part = (features / features.norm(dim=1, keepdim=True))[:, start : start + width]
    for i in range(len(z)):
        others = [j for j in range(len(z)) if j != i]
        positives = [j for j in others if labels[j] == labels[i]]
        s = (z @ z[i] + part @ z[i]) / 0.07
        losses = s[others].logsumexp(0) - s[positives]
        total = total + losses.sum() / max(1, len(positives)) / len(z)
    return total


def slow_prototypes(z: Tensor, paths: list[list[int]], place: int) -> dict[int, Tensor]:
    columns = sorted({row[place] for row in paths if row[place] >= 0})
    return {
        column: torch.stack([z[i] for i, row in enumerate(paths) if row[place] == column]).mean(0) for column in columns
    }


def slow_ope(a: Tensor, b: Tensor, paths: list[list[int]]) -> Tensor:
    """Mean over levels with two classes or more of the contrast of prototypes of two views, at temperature 0.5."""
    terms = []
    for place in range(len(paths[0])):
        views = slow_prototypes(a, paths, place), slow_prototypes(b, paths, place)
        if len(views[0]) < 2:
            continue
        points = {(v, c): p / p.norm() for v, view in enumerate(views) for c, p in view.items()}
        losses = []
        for (v, c), p in points.items():
            others = [key for key in points if key != (v, c)]
            s = torch.stack([p @ points[key] / 0.5 for key in others])
            losses.append(F.cross_entropy(s, torch.tensor(others.index((1 - v, c)))))
        terms.append(sum(losses) / len(losses))
    return sum(terms, torch.zeros(())) / max(1, len(terms))


def reference_step(twin: OnPro, batch: Batch, tree: Taxonomy, turns: int) -> tuple[dict[str, float], int]:
    """What the step reports, and how many pairs the feedback drew."""
    twin.net.grow(tree)
    rng, linear = twin.rng, twin.prototypes._linear
    x, y, drawn = twin.memory.columns.get("x"), twin.memory.columns.get("y"), 0
    sets = [(batch.x, batch.y, batch.x.float(), batch.y, batch.y, [0.0] * len(batch.y))]
    if twin.memory.size:
        slots = rng.choice(twin.memory.size, size=min(5, twin.memory.size), replace=False, shuffle=False)
        first, second, share, drawn = reference_mix(twin, slots, tree)
        weights = torch.from_numpy(share)[:, None, None, None]
        blend = (1 - weights) * x[first] + weights * x[second]
        sets.append((x[slots], y[slots], blend, y[first], y[second], share.tolist()))

    def strong(images: Tensor) -> Tensor:
        return resized_crop(random_grayscale(images, rng, 0.25), rng, True, (0.3, 1.0))

    plain = [torch.cat([torch.rot90(images, k, (2, 3)) for k in range(turns)]) for images, *_ in sets]
    views = [(images, strong(images)) for images in plain]
    blends = [strong(blend) for _, _, blend, *_ in sets]
    terms = []  # by batch
    for (_, own, _, a, b, shares), pair, blend in zip(sets, views, blends, strict=True):
        paths = [path(tree, node) for node in own.tolist()]
        features = torch.cat([twin.net.f(view)[0] for view in pair])
        z = features @ linear.weight.t() + linear.bias
        z = z / z.norm(dim=1, keepdim=True)
        half, n = len(z) // 2, len(own)
        labels = [(node, k) for _ in range(2) for k in range(turns) for node in own.tolist()]
        sides = [[path(tree, node) for node in side.tolist()] for side in (a, b)]
        start = int(rng.integers(features.shape[1] - z.shape[1] + 1))
        upright = z[:n], z[half : half + n]
        terms.append(
            torch.stack(
                [
                    slow_mixed_ce(twin.net(blend).logits, *sides, shares),
                    slow_contrast(features, z, labels, start),
                    slow_ope(*upright, paths),
                ]
            )
        )
    losses = sum(terms)
    twin.net.step(losses.sum())
    if len(sets) > 1:
        means = (upright[0] + upright[1]).detach() / 2
        twin.prototypes._last = {}
        for place, level in enumerate(tree.levels):
            found = slow_prototypes(means, paths, place)
            rows = torch.stack(list(found.values())) if found else means[:0]
            twin.prototypes._last[level] = torch.tensor(list(found), dtype=torch.long), rows
    twin.memory.insert(x=batch.x, y=batch.y)
    return dict(zip(("loss.ce", "loss.instance", "loss.prototypes"), losses.tolist(), strict=True)), drawn


@pytest.mark.parametrize("turns", [1, 4])
def test_a_step_is_mixed_cross_entropy_instance_contrast_and_prototypes_of_stream_and_replay(turns: int) -> None:
    def make() -> OnPro:
        return OnPro(setup(buffer=16, replay_batch=5), OnProSettings(rotations=turns))

    learner, drawn = make(), 0
    steps = watched(learner.net)
    for batch, tree in arriving(8, b=6):
        twin = twins(make, learner)
        wanted = watched(twin.net)
        stats, feedback = reference_step(twin, batch, tree, turns)
        assert learner.learn(batch, tree) == pytest.approx(stats, rel=1e-3, abs=1e-5)
        assert_same_steps(steps[-1:], wanted)
        assert_same_state(learner.state_dict(), twin.state_dict())
        drawn += feedback
    assert len(steps) == 8, "one step a batch"
    assert drawn, "the feedback drew no pair"
    assert stats["loss.prototypes"] > 0.01, "otherwise missing prototypes would not be seen"
