from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from dhocl.heads.banks import similarities
from dhocl.heads.patches import class_scores
from dhocl.heads.prototypes import HprSettings, Prototypes, cluster_and_separation
from dhocl.metrics import correlation
from dhocl.optim import Optimizer
from tensors import unit
from trees import balanced_tree

seeds = st.integers(0, 1000)
TREE = balanced_tree(3, 4)


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
        monkeypatch.setattr("dhocl.heads.prototypes.SAMPLED", 7)
        some = [prototypes.losses(patches, targets, TREE) for _ in range(4000)]
    assert len({float(drawn.drift) for drawn in some}) > 100
    for name in ("alignment", "drift"):
        whole, part = (torch.stack([getattr(drawn, name) for drawn in all_]).mean() for all_ in (every, some))
        torch.testing.assert_close(part, whole, rtol=0.03, atol=0)


def test_distances_are_one_minus_similarity() -> None:
    prototypes, _ = fresh(HprSettings(adapter=True, prototype_size=8))
    prototypes.grow(torch.randn(12, 4, 8), TREE.complete(TREE.nodes(1)), TREE)
    d, bank = prototypes.distances(1), F.normalize(prototypes._bank(1).parameter.detach(), dim=2)
    torch.testing.assert_close(d[2, 7], 1 - similarities([bank], torch.tensor([2]), torch.tensor([7]))[0])
    assert d.diagonal().abs().max() < 1e-5
    torch.testing.assert_close(d, d.t())
