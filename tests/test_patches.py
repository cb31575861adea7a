from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dhocl.heads.patches import class_costs, class_scores, temporal_drift
from dhocl.heads.prototypes import cluster_and_separation
from tensors import precise as normal

seeds = st.integers(0, 1000)


def unit(*shape: int, seed: int = 0) -> Tensor:
    return F.normalize(normal(*shape, seed=seed), dim=-1)


@given(seeds)
def test_scores_by_brute_force(seed: int) -> None:
    patches, bank = unit(3, 5, 8, seed=seed), 3 * normal(4, 2, 8, seed=seed)
    by_hand = torch.empty(3, 4, 2, dtype=torch.double)
    for b, c, j in itertools.product(range(3), range(4), range(2)):
        by_hand[b, c, j] = max(F.cosine_similarity(patches[b, i], bank[c, j], dim=0) for i in range(5))
    torch.testing.assert_close(class_scores(patches, bank), by_hand)


@given(seeds)
def test_scores_have_the_gradient_that_autograd_finds(seed: int) -> None:
    leaves = [unit(3, 5, 8, seed=seed).requires_grad_(), (3 * normal(4, 2, 8, seed=seed)).requires_grad_()]
    patches, bank = leaves
    weights = normal(3, 4, 2, seed=seed + 1)
    cosines = torch.einsum("bpk,cjk->bpcj", patches, F.normalize(bank, dim=2))
    expected = torch.autograd.grad((cosines.amax(1) * weights).sum(), leaves)
    found = torch.autograd.grad((class_scores(patches, bank) * weights).sum(), leaves)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want)


def test_patches_that_tie_share_the_gradient() -> None:
    direction = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.double)  # products without rounding, so that they tie
    patches = torch.stack([direction, -direction, direction])[None].requires_grad_()
    (found,) = torch.autograd.grad(class_scores(patches, 2 * direction[None, None]).sum(), patches)
    torch.testing.assert_close(found[0], torch.stack([direction / 2, torch.zeros_like(direction), direction / 2]))


@given(seeds, st.integers(1, 4))
def test_costs_and_their_gradient_are_those_of_separate_losses(seed: int, classes: int) -> None:
    scores, columns = normal(6, classes, 3, seed=seed).requires_grad_(), torch.arange(6) % classes
    found = class_costs(scores, columns, 4.0, 0.8, 0.08)
    cluster, separation = cluster_and_separation(2 - 2 * scores.amax(2), columns)
    expected = F.cross_entropy(4 * scores.sum(2), columns) + 0.8 * cluster - 0.08 * separation
    torch.testing.assert_close(found, expected)
    gradients = (torch.autograd.grad(3 * cost, scores) for cost in (found, expected))
    torch.testing.assert_close(*gradients)


def drift_of_one(patches: Tensor, now: Tensor, before: Tensor, top: int) -> Tensor:
    """Patches (N, k), a prototype (k,) now and before."""
    near = patches @ now
    picked = near.argsort(descending=True)[:top]
    return (near[picked] - patches[picked] @ before).square().mean()


@given(seeds)
def test_drift_and_its_gradient_are_those_of_the_top_patches_alone(seed: int) -> None:
    leaves = [unit(20, 8, seed=seed).requires_grad_(), unit(3, 8, seed=seed + 1).requires_grad_()]
    patches, bank = leaves
    cached, weights = unit(3, 8, seed=seed + 2), normal(3, seed=seed)
    expected = torch.stack([drift_of_one(patches, now, then, 2) for now, then in zip(bank, cached, strict=True)])
    found = temporal_drift(patches, bank, cached, 0.1)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((side * weights).sum(), leaves) for side in (found, expected)]
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got, want)


def test_prototypes_that_stayed_have_no_drift() -> None:
    bank = unit(3, 8, seed=1)
    assert temporal_drift(unit(20, 8), bank, bank, 0.1).abs().max() == 0
