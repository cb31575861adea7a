from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dhocl.checks import CHECKS, assert_same, exam, feed, passes, setup, stream
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN
from dhocl.methods.icicle import (
    ICICLE,
    IcicleSettings,
    PrototypeHead,
    PrototypeHeads,
    activation,
    similarity_drift,
    unit_patches,
)
from dhocl.nn.heads.prototypes import class_scores
from dhocl.nn.objectives import LossName
from dhocl.nn.optim import Optimizer
from tests.helpers.reference_distil import Step, assert_remembered, assert_step, columns, haf, steps, views
from tests.helpers.tensors import normal, unit
from tests.helpers.trees import balanced_tree

seeds = st.integers(0, 1000)
SMALL = IcicleSettings(prototypes=2)
TREE = balanced_tree(2, 3)  # 2 classes of level 0, 6 of level 1


def a_head(settings: IcicleSettings = SMALL, width: int = 3) -> PrototypeHead:
    head = PrototypeHead(0, 8, settings, Optimizer(0.0), Rng(0, "prototypes"))
    head.grow(unit(6, 4, 8), torch.arange(6) % width, width)
    return head


# -- activation ------------------------------------------------------------------------------------------------


@given(st.floats(0, 4), st.floats(1e-3, 4))
def test_activation_falls_with_the_distance(distance: float, further: float) -> None:
    if distance + further <= 4:
        near, far = activation(1 - torch.tensor([distance, distance + further]).double() / 2)
        assert near > far > 0


def test_activation_is_largest_where_patch_and_prototype_meet() -> None:
    assert activation(torch.tensor(1.0)).item() == pytest.approx(math.log(1e4))
    assert activation(torch.tensor(1.0 + 1e-6)).item() == pytest.approx(math.log(1e4))
    assert activation(torch.tensor(-1.0)).item() == pytest.approx(math.log(5 / 4.0001))
    assert activation(torch.tensor(0.0), 0.5).item() == pytest.approx(math.log(3 / 2.5))


# -- distillation ----------------------------------------------------------------------------------------------


def test_what_has_not_changed_costs_nothing_and_pulls_at_nothing() -> None:
    before = normal(3, 6, 4)
    now = before.clone().requires_grad_()
    cost = similarity_drift(now, before, 0.5)
    assert cost == 0
    (gradient,) = torch.autograd.grad(cost, now)
    assert (gradient == 0).all()


@given(seeds)
def test_distillation_by_hand_counts_only_what_was_most_similar(seed: int) -> None:
    now, before = normal(3, 10, 4, seed=seed), normal(3, 10, 4, seed=seed + 1)
    total = 0.0
    for b in range(3):
        square = 0.0
        for n in range(4):
            kept = sorted(range(10), key=lambda p: -before[b, p, n])[:2]
            square += sum((before[b, p, n] - now[b, p, n]).item() ** 2 for p in kept)
        total += math.sqrt(square) / 3
    assert similarity_drift(now, before, 0.2).item() == pytest.approx(total, rel=1e-5)
    assert similarity_drift(now, before, 0.001).item() > 0  # one patch at least


def test_the_old_prototypes_are_a_target() -> None:
    now, before = normal(2, 5, 3).requires_grad_(), normal(2, 5, 3, seed=1).requires_grad_()
    similarity_drift(now, before, 1.0).backward()
    assert before.grad is None
    assert now.grad is not None


def test_prototypes_are_held_to_their_copies() -> None:
    head = a_head()
    patches = unit(4, 9, 8, seed=1)
    assert head.drift(patches) == 0  # nothing to hold on to yet
    with torch.no_grad():
        head.bank.parameter.mul_(0.5)
    head.copy()
    assert head.drift(patches) == 0
    with torch.no_grad():
        head.bank.parameter.mul_(3)  # only directions count
    assert head.drift(patches) < 1e-4
    with torch.no_grad():
        head.bank.parameter.add_(0.3 * normal(*head.bank.parameter.shape, seed=2))
    assert head.drift(patches) > 0.01


def test_only_classes_that_have_had_an_image_are_held() -> None:
    head = PrototypeHead(0, 8, SMALL, Optimizer(0.0), Rng(0, "prototypes"))
    head.grow(unit(3, 4, 8), torch.tensor([0, UNKNOWN, 2]), 4)
    head.copy()
    assert head.columns.tolist() == [0, 2]
    patches = unit(4, 9, 8, seed=1)
    with torch.no_grad():
        head.bank.parameter[1] = normal(2, 8, seed=3)
    assert head.drift(patches) == 0
    head.grow(unit(1, 4, 8), torch.tensor([1]), 4)
    head.copy()
    assert head.columns.tolist() == [0, 1, 2]


# -- heads -----------------------------------------------------------------------------------------------------


def test_new_banks_start_from_patches_of_the_class() -> None:
    head = PrototypeHead(0, 8, SMALL, Optimizer(0.0), Rng(0, "prototypes"))
    patches, own = unit(4, 4, 8), torch.tensor([1, 0, 1, UNKNOWN])
    head.grow(patches, own, 2)
    for column in range(2):
        nearest = class_scores(patches[own == column], head.unit)[:, column].amax(0)
        torch.testing.assert_close(nearest, torch.ones(2))
    kept = head.bank.parameter.clone()
    head.grow(unit(4, 4, 8, seed=1), torch.tensor([0, 1, 2, 2]), 3)
    assert torch.equal(head.bank.parameter[:2], kept), "old banks stay as they are"


def test_an_image_that_holds_a_prototype_has_no_cluster_cost_and_one_without_label_none_at_all() -> None:
    head = a_head(IcicleSettings(prototypes=2, separation=0.0))
    patches = unit(3, 9, 8, seed=1)
    patches[0, 4], patches[1, 0] = head.unit[2, 0].detach(), head.unit[1, 1].detach()
    cosines = class_scores(patches, head.unit)
    assert abs(head.shape(cosines, torch.tensor([2, 1, UNKNOWN]))) < 1e-5
    assert head.shape(cosines, torch.tensor([2, 1, 0])) > 1e-3
    assert head.shape(cosines, torch.full((3,), UNKNOWN)) == 0


def test_the_separation_has_a_floor() -> None:
    """Distances on the sphere end at 4: pushing prototypes away pays no more than 0.08 times that."""
    head, optimizer = a_head(IcicleSettings(prototypes=2, cluster=0.0)), Optimizer(0.0)
    optimizer.add([("bank", head.bank.parameter)], 0.1)
    patches, own = unit(6, 4, 8), torch.arange(6) % 3
    for _ in range(100):
        optimizer.step(head.shape(class_scores(patches, head.unit), own))
    cost = head.shape(class_scores(patches, head.unit), own)
    assert -0.08 * 4 <= cost < -0.08


def test_a_class_is_judged_by_its_own_prototypes_alone() -> None:
    heads = PrototypeHeads(8, SMALL, Optimizer(0.0), seed=0)
    heads.grow(unit(6, 4, 8), TREE.complete(TREE.nodes(1)), TREE)
    patches = unit(4, 9, 8, seed=1)
    before, cosines = heads(patches)
    with torch.no_grad():
        heads.levels[1].bank.parameter[2] = normal(2, 8, seed=2)
        heads.log_scale.fill_(math.log(3))
    after = heads(patches)[0]
    others = [0, 1, 3, 4, 5]
    torch.testing.assert_close(after[1][:, others], 3 / 4 * before[1][:, others])
    assert not torch.allclose(after[1][:, 2], 3 / 4 * before[1][:, 2])
    d = (2 - 2 * cosines[0]).clamp_min(0)
    torch.testing.assert_close(before[0], 4 * ((d + 1) / (d + 1e-4)).log().sum(2))


def test_patches_are_the_positions_of_the_map_at_unit_length() -> None:
    fmap = normal(4, 5, 3, 2, seed=1)
    patches = unit_patches(fmap)
    torch.testing.assert_close(patches[2, 3], fmap[2, :, 1, 1] / fmap[2, :, 1, 1].norm())
    assert patches.shape == (4, 6, 5)


# -- the learner -----------------------------------------------------------------------------------------------


def make() -> ICICLE:
    return ICICLE(setup(), IcicleSettings(every=12))


def test_prototypes_lie_on_the_last_map() -> None:
    given = setup()
    given.backbone.maps = {16: 64, 32: 64}
    assert ICICLE(given, IcicleSettings()).net.f.map_stride == 32


def test_predictions_in_portions_are_those_of_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make()
    feed(learner, stream(3))
    x, _ = exam()
    whole, calls, heads = learner.predict(x), [], learner.heads
    monkeypatch.setattr("dhocl.methods.icicle.AT_ONCE", 3)
    monkeypatch.setattr(learner, "heads", lambda maps: (calls.append(len(maps)), heads(maps))[1])
    portions = learner.predict(x)
    assert max(calls) == 3
    assert sum(calls) == len(x) > 3
    for level, p in whole.items():
        torch.testing.assert_close(portions[level], p)


def test_prototypes_predict_and_linear_heads_do_not() -> None:
    learner = make()
    feed(learner, stream(3))
    x, _ = exam()
    before = learner.predict(x)
    for name in ("linear.0.weight", "linear.1.weight"):
        learner.net.optimizer._named[name].data.add_(1)
    assert_same(before, learner.predict(x), "linear heads have no say")
    learner.heads.levels[1].bank.parameter.data.copy_(normal(*learner.heads.levels[1].bank.parameter.shape))
    after = learner.predict(x)
    assert torch.equal(before[0], after[0])
    assert not torch.allclose(before[1], after[1])


def test_everything_of_the_heads_trains_and_copies_lag_behind() -> None:
    learner = ICICLE(setup(), IcicleSettings(every=16))
    curator = feed(learner, stream(2))
    named = {name: p.detach().clone() for name, p in learner.net.optimizer._named.items()}
    feed(learner, stream(1, seed=3), curator)
    for name in ("log_scale", "prototypes.0", "prototypes.1"):
        assert not torch.equal(named[name], learner.net.optimizer._named[name]), name
    head = learner.heads.levels[1]
    assert not torch.allclose(head.old, head.unit[head.columns], atol=1e-5)


def test_costs_as_much_as_replay() -> None:
    learner = make()
    feed(learner, stream(6))
    assert passes(learner.net.f) == 3 * (6 * 8 + 5 * 4)


@pytest.mark.parametrize("loss", ["multi_ce", "hxe", "soft_ce", "hcon"])
def test_goes_with_every_loss(loss: LossName) -> None:
    for check in CHECKS[:2]:
        check(lambda given: ICICLE(given, IcicleSettings(every=12, loss=loss)))


# -- steps by hand ---------------------------------------------------------------------------------------------


class Copy(NamedTuple):
    """Of one level, when it was taken."""

    columns: list[int]  # classes that had had an image
    prototypes: Tensor  # (n, J, k) of unit length


def squared_distances(feature_map: Tensor, prototypes: Tensor) -> Tensor:
    """(B, k, h, w), (n, J, k) -> (B, n, J, patches), between vectors of unit length."""
    patches = feature_map.flatten(2) / feature_map.flatten(2).norm(dim=1, keepdim=True)  # (B, k, P)
    prototypes = prototypes / prototypes.norm(dim=2, keepdim=True)
    return (2 - 2 * torch.einsum("bkp,njk->bnjp", patches, prototypes)).clamp_min(0)


def similarity(squared: Tensor) -> Tensor:
    return ((squared + 1) / (squared + 1e-4)).log()


def loss_by_hand(step: Step, copies: dict[int, Copy]) -> Tensor:
    heads, total = step.twin.heads, torch.zeros(())
    batches = [(step.twin.net(pixels).map, y) for pixels, y in views(step)]
    heads.grow(unit_patches(batches[0][0].detach()), step.taxonomy.complete(batches[0][1]), step.taxonomy)
    for feature_map, y in batches:
        logits = {}
        for level, head in heads.levels.items():
            squared = squared_distances(feature_map, head.bank.parameter)
            logits[level] = heads.log_scale.exp() * similarity(squared.amin(3)).sum(2)
            labelled = columns(y, level, step.taxonomy)
            for row, own in labelled.items():
                nearest = squared[row].amin((1, 2))  # (classes,)
                total = total + 0.7 * nearest[own] / len(labelled)
                if len(nearest) > 1:
                    total = total - 0.06 * min(nearest[c] for c in range(len(nearest)) if c != own) / len(labelled)
            if level in copies:
                known, prototypes = copies[level]
                if torch.equal(F.normalize(head.bank.parameter[known], dim=2), prototypes):
                    continue  # just copied: no cost, no gradient
                before = similarity(squared_distances(feature_map, prototypes)).detach()  # (B, n, J, P)
                now = similarity(squared[:, known])
                change = (before - now).square()
                for row in range(len(y)):
                    kept = torch.zeros(())
                    for c, j in itertools.product(range(len(known)), range(2)):
                        top = before[row, c, j].topk(2).indices  # half of 4 patches
                        kept = kept + change[row, c, j, top].sum()
                    total = total + 0.3 * kept.sqrt() / len(y)
        total = total + haf(logits, y, step.taxonomy)
    return total


def test_steps_by_hand() -> None:
    weights = {"cluster": 0.7, "separation": 0.06, "distillation": 0.3, "top_patches": 0.5}
    learner = ICICLE(setup(), IcicleSettings(prototypes=2, every=20, **weights))
    met: dict[int, set[int]] = {}
    copies: dict[int, Copy] = {}
    for number, step in enumerate(steps(learner, stream(8)), 1):  # 8 samples each; the fish come with the fifth
        assert_step(step, loss_by_hand(step, copies), tolerance=2e-3)
        assert_remembered(step, learner)
        for level in step.taxonomy.levels:
            met.setdefault(level, set()).update(columns(step.batch.y, level, step.taxonomy).values())
        if number * 8 // 20 > (number - 1) * 8 // 20:
            for level, head in learner.heads.levels.items():
                known = sorted(met[level])
                copies[level] = Copy(known, F.normalize(head.bank.parameter[known].detach(), dim=2))
    assert [len(each.columns) for each in copies.values()] == [2, 4]
