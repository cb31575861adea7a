"""Reliability of levels against enumeration of paths and a general optimiser."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import Label
from dhocl.nn.heads.reliability import (
    FLAT,
    SHAPE,
    START,
    STIFFNESS,
    Placement,
    Reliability,
    calibrated,
    fit,
    fit_shape,
    level_scores,
    marginals,
    minimised,
    path_scores,
)
from tests.helpers.tensors import normal
from tests.helpers.trees import balanced_tree


def uneven() -> TreeTable:
    """0 > (0, 1) and 1, without children; a loose class of the finer level."""
    tree = balanced_tree(2)
    for name in ("a", "b"):
        tree.link(tree.add(Label(name, 1)), 0)
    tree.add(Label("loose", 1))
    return TreeTable.of(tree)


def test_paths_score_by_weighted_outputs_and_means_where_they_have_no_class() -> None:
    leaves = uneven().leaves
    assert leaves.tolist() == [[1, -1], [0, 0], [0, 1], [-1, 2]]
    z = {0: torch.tensor([[1.0, 3.0]]), 1: torch.tensor([[2.0, 4.0, 9.0]])}
    scores = path_scores(z, torch.tensor([10.0, 100.0]), leaves, {})
    assert scores.tolist() == [[30 + 500, 10 + 200, 10 + 400, 20 + 900]]


def test_a_class_without_a_place_scores_by_where_it_may_lie() -> None:
    z, placed = torch.tensor([[1.0, 3.0]]), Placement(torch.tensor([2]), torch.tensor([[0.25, 0.75]]))
    found = level_scores(z, 2.0, torch.tensor([1, 0, -1, -1]), placed)
    expected = [6, 2, math.log(0.25 * math.exp(2) + 0.75 * math.exp(6)), 4]
    torch.testing.assert_close(found, torch.tensor([expected]))
    p = marginals(torch.tensor([[0.4, 0.3, 0.2, 0.1]]), torch.tensor([[1], [0], [-1], [-1]]), {0: 2}, {0: placed})
    torch.testing.assert_close(p[0], torch.tensor([[0.3 + 0.05, 0.4 + 0.15]]) / 0.9)


def test_marginals_sum_over_the_paths_that_reach_a_level() -> None:
    posterior = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    p = marginals(posterior, uneven().leaves, {0: 2, 1: 3}, {})
    torch.testing.assert_close(p[0], torch.tensor([[0.5, 0.1]]) / 0.6)
    torch.testing.assert_close(p[1], torch.tensor([[0.2, 0.3, 0.4]]) / 0.9)


def test_calibrated_mixes_a_sharp_and_a_flat_version() -> None:
    p, shape = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([math.log(2.0), 0.0])
    sharp, flat = p**2, p ** (2 / FLAT)
    mixed = (sharp / sharp.sum() + flat / flat.sum()) / 2
    torch.testing.assert_close(calibrated(p, shape), 0.999 * mixed + 0.001 / p.shape[1])
    torch.testing.assert_close(calibrated(p, torch.tensor([0.0, -30.0])), 0.999 * p + 0.001 / p.shape[1])


def test_calibration_keeps_the_order_of_the_classes() -> None:
    p = normal(20, 6).mul(3).softmax(1)
    found = calibrated(p, torch.tensor([0.7, -0.5]))
    assert torch.equal(found.argsort(1), p.argsort(1))
    torch.testing.assert_close(found.sum(1), torch.ones(20))


def test_the_shape_is_that_of_a_general_optimiser() -> None:
    p = normal(300, 5).mul(3).softmax(1)
    right = torch.rand(300, generator=torch.Generator().manual_seed(1)) < p.max(1).values ** 2
    columns = torch.where(right, p.argmax(1), p.argmin(1))

    def loss(shape: np.ndarray) -> float:
        q = calibrated(p.double(), torch.from_numpy(shape)).max(1).values
        log_likelihood = torch.where(right, q.log(), (1 - q).log()).mean()
        return -float(log_likelihood) + STIFFNESS * float(((shape - np.array([0.0, -3.0])) ** 2).sum())

    best = minimize(loss, [0.0, -3.0], method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-8}).x
    found = fit_shape(p, columns, torch.tensor([0.0, -3.0]))
    assert loss(found.double().numpy()) == pytest.approx(loss(best), abs=1e-3)
    before, after = (abs(q.max(1).values.mean() - right.float().mean()) for q in (p, calibrated(p, found)))
    assert after < before / 2


def problem() -> tuple[list[Tensor], Tensor, Tensor]:
    """Level 0 is informative, level 1 is noise."""
    leaves = TreeTable.of(balanced_tree(3, 2)).leaves
    own = torch.arange(60) % 6
    z = [0.3 * normal(60, 3, seed=1), 0.3 * normal(60, 6, seed=2)]
    z[0][torch.arange(60), leaves[own, 0]] += 0.5
    return z, own, leaves


def test_fit_finds_the_optimum_of_a_general_optimiser() -> None:
    z, own, leaves = problem()
    start = torch.tensor([1.0, 1.0])

    def loss(log_beta: np.ndarray) -> float:
        nll = 0.0
        for i in range(60):
            scores = [
                sum(math.exp(log_beta[h]) * float(z[h][i, leaves[p, h]]) for h in range(2)) for p in range(len(leaves))
            ]
            top = max(scores)
            nll += top + math.log(sum(math.exp(s - top) for s in scores)) - scores[int(own[i])]
        return nll / 60 + STIFFNESS * float(((log_beta - 1.0) ** 2).sum())

    best = minimize(loss, [1.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-8}).x
    found = fit(dict(enumerate(z)), own, leaves, {}, start)
    torch.testing.assert_close(found, torch.from_numpy(best).float(), atol=0.02, rtol=0)
    assert found[0] > found[1]


def test_a_fit_that_diverges_changes_nothing() -> None:
    start = torch.tensor([0.5, 1.0])
    found = minimised(lambda x: (x - 3).square().sum() / (x - start).square().sum().sqrt().clamp_min(0), start)
    assert torch.equal(found, start)


def test_reliability_predicts_calibrated_marginals_of_its_posterior() -> None:
    table = TreeTable.of(balanced_tree(3, 2))
    z, own, leaves = problem()
    outputs = dict(enumerate(z))
    reliability = Reliability()
    assert reliability.beta(0) == pytest.approx(START)
    y = table.nodes(1)[own]
    reliability.fit(outputs, y, table, {})
    expected = fit(outputs, own, leaves, {}, torch.full((2,), math.log(START)))
    assert [math.log(reliability.beta(h)) for h in (0, 1)] == pytest.approx(expected.tolist(), abs=1e-4)
    score = sum(math.exp(expected[h]) * z[h][:, leaves[:, h]] for h in (0, 1))
    p = marginals(score.softmax(1), leaves, {0: 3, 1: 6}, {})
    found = reliability.probabilities(outputs, leaves, {})
    for h in (0, 1):
        target = table.columns(y, h)
        shape = fit_shape(p[h], target, torch.tensor(SHAPE))
        torch.testing.assert_close(found[h], calibrated(p[h], shape), rtol=1e-3, atol=1e-3)


def test_too_few_samples_leave_it_as_it_is() -> None:
    table = TreeTable.of(balanced_tree(3, 2))
    reliability = Reliability()
    reliability.fit({0: normal(5, 3), 1: normal(5, 6)}, table.nodes(1)[:5], table, {})
    assert reliability.log_beta == {}


def test_state() -> None:
    reliability, again = Reliability(), Reliability()
    reliability.log_beta, reliability.shapes, reliability.fitted_at = {0: 1.5, 3: 2.5}, {3: [-0.25, 1.0]}, 480
    again.load_state_dict(reliability.state_dict())
    assert vars(again) == {"log_beta": {0: 1.5, 3: 2.5}, "shapes": {3: [-0.25, 1.0]}, "fitted_at": 480}


def test_gradients_are_what_is_believed_of_a_class_less_what_is_true_of_it() -> None:
    outputs, own, leaves = problem()
    table, z = TreeTable.of(balanced_tree(3, 2)), dict(enumerate(outputs))
    reliability = Reliability()
    reliability.log_beta = {0: math.log(2.0), 1: math.log(3.0)}
    found = reliability.gradients(z, table.is_leaf.nonzero()[own, 0], table, {})
    assert list(found) == [0, 1]
    p = marginals(reliability.posterior(z, leaves, {}), leaves, {0: 3, 1: 6}, {})
    for level, beta in enumerate((2.0, 3.0)):
        true = torch.nn.functional.one_hot(leaves[own, level], p[level].shape[1])
        torch.testing.assert_close(found[level], beta * (p[level] - true), atol=1e-5, rtol=1e-4)
