"""RanPAC against scikit-learn: the ridge that it chooses, and the weights over all samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.linear_model import Ridge

from dhocl.checks import exam, feed, setup, stream
from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.ranpac import RIDGES, RanPAC, RanpacSettings, Recent, best_ridge, stable_factor
from tests.helpers.reference_closed_form import Samples, features, followed

UNITS, WINDOW, TAU = 60, 70, 0.4


def expanded(phi: np.ndarray) -> np.ndarray:
    rows = np.maximum(phi @ Rng(0, "expansion").standard_normal((phi.shape[1], UNITS)), 0)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def weights(phi: np.ndarray, Y: np.ndarray, ridge: float) -> np.ndarray:
    fit = Ridge(alpha=ridge, fit_intercept=False, solver="cholesky").fit(phi, Y)
    return np.reshape(fit.coef_, (Y.shape[1], -1))


def slow_ridge(samples: Samples, level: int, tree: Taxonomy) -> float:
    """The power of ten with the least error on every fifth of the recent samples that have a class here."""
    rows, phi, columns = samples.at(level, tree)
    recent = [k for k, i in enumerate(rows) if i >= len(samples.nodes) - WINDOW]
    fit_on, held = [k for n, k in enumerate(recent) if n % 5 != 4], recent[4::5]
    if not held:
        return 1.0
    Y, phi = np.eye(tree.widths[level])[columns], expanded(phi)
    errors = {
        10.0**power: np.mean((phi[held] @ weights(phi[fit_on], Y[fit_on], 10.0**power).T - Y[held]) ** 2)
        for power in range(-4, 5)
    }
    return min(errors, key=errors.__getitem__)


def slow_weights(samples: Samples, level: int, tree: Taxonomy, ridge: float) -> np.ndarray:
    """Rows of a level of the label count by the share of them that have a class here."""
    known = samples.at(level, tree)
    ranks = np.array([tree.labels[node].level for node in samples.nodes])
    Y = np.zeros((len(ranks), tree.widths[level]))
    Y[known.rows, known.columns] = 1
    phi = expanded(np.array(samples.phi))
    share = {rank: (ranks[known.rows] == rank).sum() / (ranks == rank).sum() for rank in set(ranks.tolist())}
    A = ridge * np.eye(UNITS)
    for row, rank in zip(phi, ranks.tolist(), strict=True):
        A += share[rank] * np.outer(row, row)
    W: np.ndarray = np.linalg.solve(A, phi.T @ Y).T
    if set(share.values()) <= {0.0, 1.0} and known.rows:
        np.testing.assert_allclose(W, weights(phi[known.rows], Y[known.rows], ridge), atol=1e-6)
    return W


def test_it_equals_ridge_regression_on_all_samples_by_the_present_tree() -> None:
    learner = RanPAC(setup(), RanpacSettings(UNITS, WINDOW, TAU))
    x, chosen = exam()[0], set()
    test = expanded(features(x))
    for samples, tree, predicted in followed(learner, x):
        for level, width in tree.widths.items():
            ridge = slow_ridge(samples, level, tree)
            scores = test @ slow_weights(samples, level, tree, ridge).T
            np.testing.assert_allclose(predicted[level].numpy(), softmax(scores * width**0.5 / TAU, axis=1), atol=2e-3)
            chosen.add(ridge)
    assert len(chosen) > 1
    assert len(learner.recent.y) == WINDOW
    assert learner.recent.y.tolist() == samples.nodes[-WINDOW:]


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
def test_the_ridge_is_that_of_the_least_error_on_every_fifth_row(noise: float) -> None:
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((60, 20))
    Y = phi @ rng.standard_normal((20, 3)) + noise * rng.standard_normal((60, 3))
    held = np.arange(60) % 5 == 4
    errors = [np.mean((phi[held] @ weights(phi[~held], Y[~held], r).T - Y[held]) ** 2) for r in RIDGES]
    assert best_ridge(torch.from_numpy(phi), torch.from_numpy(Y)) == RIDGES[int(np.argmin(errors))]


def test_ridges_grow_with_the_noise_and_few_rows_give_1() -> None:
    phi = torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    found = [
        best_ridge(phi, phi[:, :2] + scale * torch.randn(50, 2, generator=torch.Generator().manual_seed(1)))
        for scale in (0, 10)
    ]
    assert found[0] == 1e-4
    assert found[1] > 1
    assert best_ridge(phi[:4], phi[:4, :2]) == 1.0
    assert best_ridge(phi[:0], phi[:0, :2]) == 1.0


def test_a_ridge_below_rounding_errors_is_raised() -> None:
    A = torch.diag(torch.tensor([1.0, -0.05]))
    L = stable_factor(A, 1e-4)
    torch.testing.assert_close(L @ L.t(), A + 0.1 * torch.eye(2))
    torch.testing.assert_close(stable_factor(A, 10.0).square().diag(), torch.tensor([11.0, 9.95]))
    with pytest.raises(InputError, match="positive definite"):
        stable_factor(-2e4 * torch.eye(2), 1.0)


def test_each_seed_has_its_own_projection() -> None:
    x = exam()[0]
    found = []
    for seed in (0, 0, 1):
        learner = RanPAC(setup(seed=seed), RanpacSettings(expansion=50))
        feed(learner, stream(4))
        assert learner.embed(x).shape == (40, 50)
        found.append(learner.predict(x)[1])
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2], atol=1e-4)


def test_a_recent_sample_that_is_removed_is_the_newest_of_its_features_and_label() -> None:
    recent = Recent(2, 10)
    recent.push(torch.tensor([[1.0, 0], [0, 1], [1, 0], [1, 0], [0, 1]]), torch.tensor([7, 7, 7, 8, 7]))
    recent.remove(torch.tensor([[1.0, 1e-6]]), torch.tensor([7]))
    assert recent.features.tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    assert recent.y.tolist() == [7, 7, 8, 7]
    recent.remove(torch.tensor([[1.0, 0], [0.5, 0.5]]), torch.tensor([7, 7]))
    assert recent.y.tolist() == [7, 8, 7]
    assert recent.features.tolist() == [[0, 1], [1, 0], [0, 1]]
