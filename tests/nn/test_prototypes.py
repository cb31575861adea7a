"""The maths of prototypes against loops and gradients by hand, then the head."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dhocl.experiment.metrics import correlation
from dhocl.nn.heads.prototypes import (
    HprSettings,
    Prototypes,
    class_scores,
    cluster_and_separation,
    nearest_squared,
    similarity,
    temporal_drift,
)
from dhocl.nn.optim import Optimizer
from tests.helpers.tensors import precise, unit
from tests.helpers.trees import balanced_tree

seeds = st.integers(0, 1000)
TREE = balanced_tree(3, 4)


def directions(*shape: int, seed: int = 0) -> Tensor:
    return F.normalize(precise(*shape, seed=seed), dim=-1)


# -- the maths ---------------------------------------------------------------------------------------------------


@given(seeds)
def test_scores_by_brute_force(seed: int) -> None:
    patches, bank = directions(3, 5, 8, seed=seed), 3 * precise(4, 2, 8, seed=seed)
    by_hand = torch.empty(3, 4, 2, dtype=torch.double)
    for b, c, j in itertools.product(range(3), range(4), range(2)):
        by_hand[b, c, j] = max(F.cosine_similarity(patches[b, i], bank[c, j], dim=0) for i in range(5))
    torch.testing.assert_close(class_scores(patches, bank), by_hand)


def scores_backward(patches: Tensor, bank: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Of max_i M_i·p / |p|, by the formula: (B, P, k), (C, J, k), (B, C, J) -> gradients of both inputs."""
    prototypes, gradient = bank.flatten(0, 1), gradient.flatten(1)  # (n, k), (B, n)
    lengths = prototypes.norm(dim=1)
    products = patches @ prototypes.t()  # (B, P, n)
    best = products.amax(1)
    nearest = (products == best[:, None]).double()  # patches that tie share the gradient
    slope = (nearest * (gradient / lengths / nearest.sum(1))[:, None]).flatten(0, 1)  # (B*P, n)
    shrink = (gradient * best).sum(0) / lengths**3  # what a longer prototype loses
    of_bank = slope.t() @ patches.flatten(0, 1) - shrink[:, None] * prototypes
    return (slope @ prototypes).view_as(patches), of_bank.view_as(bank)


@given(seeds)
def test_gradients_of_scores_by_the_formula(seed: int) -> None:
    leaves = [directions(3, 5, 8, seed=seed).requires_grad_(), (3 * precise(4, 2, 8, seed=seed)).requires_grad_()]
    weights = precise(3, 4, 2, seed=seed + 1)
    found = torch.autograd.grad((class_scores(*leaves) * weights).sum(), leaves)
    for got, want in zip(found, scores_backward(*(leaf.detach() for leaf in leaves), weights), strict=True):
        torch.testing.assert_close(got, want)


def test_patches_that_tie_share_the_gradient() -> None:
    direction = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.double)  # products without rounding, so that they tie
    patches = torch.stack([direction, -direction, direction])[None].requires_grad_()
    (found,) = torch.autograd.grad(class_scores(patches, 2 * direction[None, None]).sum(), patches)
    torch.testing.assert_close(found[0], torch.stack([direction / 2, torch.zeros_like(direction), direction / 2]))


@given(seeds)
def test_nearest_distances_by_brute_force(seed: int) -> None:
    patches, bank = precise(3, 5, 8, seed=seed), precise(4, 2, 8, seed=seed + 1)
    by_hand = torch.empty(3, 4, dtype=torch.double)
    for b, c in itertools.product(range(3), range(4)):
        by_hand[b, c] = min((p - q).square().sum() for p in patches[b] for q in bank[c])
    torch.testing.assert_close(nearest_squared(patches, bank), by_hand)


@given(seeds)
def test_cluster_and_separation_by_brute_force(seed: int) -> None:
    nearest = torch.rand(6, 4, generator=torch.Generator().manual_seed(seed))
    columns = torch.arange(6) % 4
    own = [nearest[i, columns[i]] for i in range(6)]
    other = [min(nearest[i, c] for c in range(4) if c != columns[i]) for i in range(6)]
    cluster, separation = cluster_and_separation(nearest, columns)
    torch.testing.assert_close(cluster, torch.stack(own).mean())
    torch.testing.assert_close(separation, torch.stack(other).mean())


def test_an_image_that_holds_a_prototype_has_no_cluster_cost() -> None:
    patches, bank = unit(2, 5, 8), unit(3, 2, 8, seed=1)
    patches[0, 3], patches[1, 0] = bank[1, 0], bank[2, 1]
    nearest = 2 - 2 * class_scores(patches, bank).amax(2)
    cluster, _ = cluster_and_separation(nearest, torch.tensor([1, 2]))
    assert abs(cluster) < 1e-6


def test_a_single_class_has_no_separation() -> None:
    assert cluster_and_separation(torch.rand(3, 1), torch.zeros(3, dtype=torch.long))[1] == 0


def drift_of_one(patches: Tensor, now: Tensor, before: Tensor, top: int) -> Tensor:
    """Patches (N, k), a prototype (k,) now and before."""
    near = patches @ now
    picked = near.argsort(descending=True)[:top]
    return (near[picked] - patches[picked] @ before).square().mean()


@given(seeds, st.sampled_from([(0.01, 1), (0.1, 2), (1.0, 20)]))
def test_drift_and_its_gradient_are_those_of_the_top_patches_alone(seed: int, share: tuple[float, int]) -> None:
    leaves = [directions(20, 8, seed=seed).requires_grad_(), directions(3, 8, seed=seed + 1).requires_grad_()]
    patches, bank = leaves
    cached, weights = directions(3, 8, seed=seed + 2), precise(3, seed=seed)
    pairs = zip(bank, cached, strict=True)
    expected = torch.stack([drift_of_one(patches, now, then, share[1]) for now, then in pairs])
    found = temporal_drift(patches, bank, cached, share[0])
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((side * weights).sum(), leaves) for side in (found, expected)]
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got, want)


def test_prototypes_that_stayed_have_no_drift() -> None:
    bank = directions(3, 8, seed=1)
    assert temporal_drift(directions(20, 8), bank, bank, 0.1).abs().max() == 0


@given(seeds)
def test_similarity_is_the_largest_cosine(seed: int) -> None:
    a, b = directions(3, 4, 8, seed=seed), directions(3, 4, 8, seed=seed + 1)
    by_hand = [max(float(p @ q) for p in a[n] for q in b[n]) for n in range(3)]
    torch.testing.assert_close(similarity(a, b), torch.tensor(by_hand, dtype=torch.double))


# -- the head ----------------------------------------------------------------------------------------------------


def fresh(settings: HprSettings) -> tuple[Prototypes, Optimizer]:
    optimizer = Optimizer(0.0)
    return Prototypes(6, settings, optimizer, seed=0), optimizer


def test_new_banks_start_from_the_classes_own_patches() -> None:
    prototypes, _ = fresh(HprSettings(adapter=True, prototype_size=8))
    patches = 5 * torch.randn(4, 3, 8)
    directions = F.normalize(patches, dim=2)
    targets = TREE.complete(torch.tensor([TREE.nodes(1)[0], TREE.nodes(1)[5], TREE.nodes(1)[0], TREE.nodes(0)[2]]))
    prototypes.grow(patches, targets, TREE)
    bank = prototypes._bank(1).parameter
    assert all(any(torch.equal(p, q) for q in directions[[0, 2]].flatten(0, 1)) for p in bank[0])
    assert all(any(torch.equal(p, q) for q in directions[1]) for p in bank[5])
    assert len(bank) == 12


def test_a_bank_repeats_no_patch_while_there_are_enough() -> None:
    prototypes, _ = fresh(HprSettings(prototypes=4))
    patches = unit(12, 4, 6)
    prototypes.grow(patches, TREE.complete(TREE.nodes(1)), TREE)
    for own, bank in zip(patches, prototypes._bank(1).parameter.detach(), strict=True):
        torch.testing.assert_close(sorted(bank.tolist()), sorted(own.tolist()))


def test_printed_patches_are_sigmoids_and_prototypes_keep_their_length() -> None:
    prototypes, _ = fresh(HprSettings(adapter=True, prototype_size=8, printed=True))
    patches = prototypes.embed(100 * torch.randn(12, 6, 2, 2))
    assert patches.min() >= 0
    assert patches.max() <= 1
    prototypes.grow(patches, TREE.complete(TREE.nodes(1)), TREE)
    assert all(any(torch.equal(p, q) for q in patches[7]) for p in prototypes._bank(1).parameter[7])


def test_alignment_is_zero_when_families_are_apart_and_positive_when_mixed() -> None:
    prototypes, _ = fresh(HprSettings(adapter=True, prototype_size=8, prototypes=1))
    targets = TREE.complete(TREE.nodes(1))
    families = torch.eye(8)[TREE.ancestors(1, 0)][:, None]  # each family its own axis
    prototypes.grow(families, targets, TREE)
    assert prototypes.losses(families, targets, TREE).alignment == 0
    shuffled, _ = fresh(HprSettings(adapter=True, prototype_size=8, prototypes=1))
    shuffled.grow(families.roll(1, 0), targets, TREE)
    assert shuffled.losses(families, targets, TREE).alignment > 0


@pytest.mark.parametrize("printed", [False, True])
def test_alignment_moves_distances_toward_the_tree(printed: bool) -> None:
    prototypes, optimizer = fresh(HprSettings(adapter=True, prototype_size=16, lr_prototypes=3e-3, printed=printed))
    torch.manual_seed(0)
    patches = torch.rand(12, 4, 16)
    targets = TREE.complete(TREE.nodes(1))
    prototypes.grow(patches, targets, TREE)
    above = torch.ones(12, 12, dtype=torch.bool).triu(1)
    before = correlation(prototypes.distances(1)[above], TREE.distances(1)[above])
    for _ in range(150):
        optimizer.step(prototypes.losses(patches, targets, TREE).alignment)
    after = correlation(prototypes.distances(1)[above], TREE.distances(1)[above])
    assert after > before + 0.2


def test_alignment_by_hand_where_each_class_has_one_stranger() -> None:
    tree = balanced_tree(2, 1, 1)
    prototypes, _ = fresh(HprSettings(adapter=True, prototype_size=4))
    prototypes.grow(unit(6, 5, 4), tree.complete(tree.nodes(2).repeat(3)), tree)
    banks = [F.normalize(prototypes._bank(level).parameter.detach(), dim=2) for level in (0, 1, 2)]

    def similarity(coarse: int, c: int, fine: int, d: int) -> float:
        return float((banks[coarse][c] @ banks[fine][d].t()).max())

    hinges = [
        max(0.0, 0.1 - similarity(coarse, c, fine, c) + similarity(coarse, c, fine, 1 - c))
        for coarse, fine in ((0, 1), (0, 2), (1, 2))
        for c in (0, 1)
    ]
    alignment = prototypes.losses(unit(6, 5, 4), tree.complete(tree.nodes(2).repeat(3)), tree).alignment
    assert alignment.item() == pytest.approx(sum(hinges) / 6, abs=1e-6)


def test_drift_is_of_what_the_cache_holds_at_every_level() -> None:
    prototypes, _ = fresh(HprSettings(adapter=True, prototype_size=8, prototypes=1, cache_every=1, top_patches=1.0))
    patches, targets = unit(12, 4, 8), TREE.complete(TREE.nodes(1))
    young = balanced_tree(2, 2)  # what was known when the cache was made
    prototypes.grow(patches, torch.full((12, 2), -1), young)
    prototypes.tick()
    then = [prototypes._bank(level).parameter.detach().clone() for level in (0, 1)]
    prototypes.grow(patches, targets, TREE)
    changes = []
    with torch.no_grad():
        for level in (0, 1):
            parameter = prototypes._bank(level).parameter
            parameter.copy_(unit(*parameter.shape, seed=5 + level))
            now = parameter[: len(then[level])]
            changes.append(((now - then[level]).flatten(0, 1) @ patches.flatten(0, 1).t()).square().mean(1))
    torch.testing.assert_close(prototypes.losses(patches, targets, TREE).drift, torch.cat(changes).mean())


@pytest.mark.parametrize("printed", [False, True])
def test_of_many_pairs_and_prototypes_a_random_part_stands_for_all(
    printed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prototypes, _ = fresh(HprSettings(adapter=True, prototype_size=16, prototypes=2, cache_every=1, printed=printed))
    torch.manual_seed(0)
    patches, targets = torch.rand(12, 4, 16), TREE.complete(TREE.nodes(1))
    prototypes.grow(patches, targets, TREE)
    prototypes.tick()
    with torch.no_grad():
        for level in (0, 1):
            prototypes._bank(level).parameter.add_(0.3 * torch.randn_like(prototypes._bank(level).parameter))
        every = [prototypes.losses(patches, targets, TREE) for _ in range(400)]  # strangers are random
        monkeypatch.setattr("dhocl.nn.heads.prototypes.SAMPLED", 7)
        some = [prototypes.losses(patches, targets, TREE) for _ in range(4000)]
    assert len({float(drawn.drift) for drawn in some}) > 100
    for name in ("alignment", "drift"):
        whole, part = (torch.stack([getattr(drawn, name) for drawn in all_]).mean() for all_ in (every, some))
        torch.testing.assert_close(part, whole, rtol=0.03, atol=0)


def test_distances_are_one_minus_similarity() -> None:
    prototypes, _ = fresh(HprSettings(adapter=True, prototype_size=8))
    prototypes.grow(torch.randn(12, 4, 8), TREE.complete(TREE.nodes(1)), TREE)
    d, bank = prototypes.distances(1), F.normalize(prototypes._bank(1).parameter.detach(), dim=2)
    torch.testing.assert_close(d[2, 7], 1 - similarity(bank[2:3], bank[7:8])[0])
    assert d.diagonal().abs().max() < 1e-5
    torch.testing.assert_close(d, d.t())


@pytest.mark.parametrize("printed", [False, True])
def test_classification_by_hand(printed: bool) -> None:
    prototypes, _ = fresh(HprSettings(prototypes=2, printed=printed))
    targets = TREE.complete(torch.tensor([*TREE.nodes(1)[[0, 5, 11]], *TREE.nodes(0)[[1, 2]]]))
    prototypes.grow(unit(5, 3, 6, seed=1), targets, TREE)
    patches, total = 2 * unit(5, 3, 6, seed=2), 0.0
    for level, labelled in ((0, 5), (1, 3)):
        bank, costs = prototypes._bank(level).parameter.detach(), []  # (C, J, k)
        for image, own in zip(patches[:labelled], targets[:, level].tolist(), strict=False):
            cosines = F.cosine_similarity(image[:, None, None], bank, dim=3).amax(0)  # (C, J)
            squares = (image[:, None, None] - bank).square().sum(3).amin(0) if printed else 2 - 2 * cosines
            far = squares.amin(1).tolist()
            logits = (1.0 if printed else 4.0) * cosines.sum(1)
            other = min(distance for column, distance in enumerate(far) if column != own)
            costs.append(-float(logits.log_softmax(0)[own]) + 0.8 * far[own] - 0.08 * other)
        total += sum(costs) / labelled
    found = prototypes.losses(patches, targets, TREE).classification.item()
    assert found == pytest.approx(total, rel=1e-5)


def test_patches_are_the_positions_of_the_map() -> None:
    prototypes, _ = fresh(HprSettings())
    feature_map = torch.randn(2, 6, 3, 4)
    patches = prototypes.embed(feature_map)
    assert patches.shape == (2, 12, 6)
    assert torch.equal(patches[1, 4 * 2 + 3], feature_map[1, :, 2, 3])


def test_defaults_are_five_prototypes_at_a_rate_of_a_hundredth_kept_every_twenty_steps() -> None:
    prototypes, optimizer = fresh(HprSettings())
    patches, targets = unit(12, 4, 6), TREE.complete(TREE.nodes(1))
    prototypes.grow(patches, targets, TREE)
    before = prototypes._bank(1).parameter.detach().clone()
    assert before.shape == (12, 5, 6)
    optimizer.step(prototypes.losses(patches, targets, TREE).classification)
    assert (prototypes._bank(1).parameter - before).abs().max().item() == pytest.approx(0.01, rel=1e-3)
    for _ in range(19):
        prototypes.tick()
    assert prototypes.losses(patches, targets, TREE).drift == 0
    prototypes.tick()
    with torch.no_grad():
        prototypes._bank(1).parameter.add_(0.1)
    assert prototypes.losses(patches, targets, TREE).drift > 0


def test_logits_of_many_images_are_computed_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    prototypes, _ = fresh(HprSettings(prototypes=2))
    patches = unit(10, 4, 6)
    prototypes.grow(patches, torch.full((10, 2), -1), TREE)
    whole, sizes = prototypes.logits(patches), []

    def seen(some: Tensor, bank: Tensor) -> Tensor:
        sizes.append(len(some))
        return class_scores(some, bank)

    monkeypatch.setattr("dhocl.nn.heads.prototypes.class_scores", seen)
    monkeypatch.setattr("dhocl.nn.heads.prototypes.AT_ONCE", 4 * 4 * 12 * 2)
    parts = prototypes.logits(patches)
    assert sizes == [10, 4, 4, 2]  # 3 classes, then 12
    for level in (0, 1):
        torch.testing.assert_close(parts[level], whole[level])
