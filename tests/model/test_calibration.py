from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.decode import believe
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.model.calibration import Calibration, Sharpness, gradients, sharpened


@given(st.integers(0, 1000), st.floats(-1.5, 1.5))
def test_the_slope_is_that_of_the_loss(seed: int, log_beta: float) -> None:
    rng = torch.Generator().manual_seed(seed)
    p = torch.rand(5, 4, generator=rng, dtype=torch.float64).softmax(1)
    true = torch.rand(5, 4, generator=rng) < 0.4
    true[:, 1] = True

    def loss(at: float) -> torch.Tensor:
        powers = p ** math.exp(at)
        return -((powers * true).sum(1) / powers.sum(1)).log()

    step = 1e-5
    expected = (loss(log_beta + step) - loss(log_beta - step)) / (2 * step)
    found = gradients(sharpened(p, math.exp(log_beta)), true)
    assert torch.allclose(found, expected, atol=1e-7)


@pytest.mark.parametrize("honest", [0.4, 1.0, 2.5])
def test_it_finds_the_sharpness_that_makes_probabilities_true(honest: float) -> None:
    """Classes are drawn from p^honest; whoever reports p must be corrected by that exponent."""
    rng = np.random.default_rng(0)
    sharpness = Sharpness()
    for _ in range(300):
        p = torch.from_numpy(rng.dirichlet(np.ones(5), 10)).clamp_min(1e-4)
        p /= p.sum(1, keepdim=True)
        drawn = [rng.choice(5, p=row) for row in sharpened(p, honest).numpy()]
        true = torch.nn.functional.one_hot(torch.tensor(drawn), 5).bool()
        sharpness.update(gradients(sharpened(p, sharpness.beta), true).tolist())
    assert sharpness.beta == pytest.approx(honest, rel=0.15)


def test_one_surprise_moves_it_little() -> None:
    sharpness = Sharpness()
    q = torch.tensor([[1.0, 0.0]])
    sharpness.update(gradients(q, torch.tensor([[False, True]])).tolist())
    assert 0.85 < sharpness.beta < 1


def test_its_state_is_everything() -> None:
    a, b = Sharpness(), Sharpness()
    a.update([1.0, -2.0, 0.5])
    b.load_state_dict(a.state_dict())
    for each in (a, b):
        each.update([0.3])
    assert a.beta == b.beta


def small_tree() -> Taxonomy:
    """bird > robin, crow; fish > cod."""
    taxonomy = Taxonomy()
    bird, fish = taxonomy.add(Label("bird", 0)), taxonomy.add(Label("fish", 0))
    for name, parent in [("robin", bird), ("crow", bird), ("cod", fish)]:
        taxonomy.link(taxonomy.add(Label(name, 1)), parent)
    return taxonomy


def test_without_news_probabilities_stay_as_they_are() -> None:
    tree, p = small_tree(), {0: torch.rand(3, 2).softmax(1), 1: torch.rand(3, 3).softmax(1)}
    found, plain = Calibration()(p, tree), believe(p, tree)
    assert all(torch.equal(found.levels[level], p[level]) for level in p)
    assert torch.equal(found.posterior, plain.posterior)


def test_each_level_and_the_paths_follow_what_was_right() -> None:
    """Against the slopes of single probabilities: `robin` counts at both levels and for its path, `bird` for two."""
    tree, calibration = small_tree(), Calibration()
    p = {0: torch.tensor([[0.7, 0.3]] * 3), 1: torch.tensor([[0.2, 0.3, 0.5]] * 3)}
    nodes = torch.tensor([tree.id(Label("robin", 1)), tree.id(Label("bird", 0))])
    calibration.update(believe(p, tree), [0, 2], nodes, tree)
    kind, species, paths = Sharpness(), Sharpness(), Sharpness()
    posterior = torch.tensor([[0.7 * 0.2, 0.7 * 0.3, 0.3 * 0.5]])
    posterior /= posterior.sum()
    kind.update(gradients(p[0][:2], torch.tensor([[True, False]] * 2)).tolist())
    species.update(gradients(p[1][:1], torch.tensor([[True, False, False]])).tolist())
    paths.update(
        [
            *gradients(posterior, torch.tensor([[True, False, False]])).tolist(),
            *gradients(posterior, torch.tensor([[True, True, False]])).tolist(),
        ]
    )
    found = calibration(p, tree)
    torch.testing.assert_close(found.levels[0], sharpened(p[0], kind.beta))
    torch.testing.assert_close(found.levels[1], sharpened(p[1], species.beta))
    expected = sharpened(believe(found.levels, tree).posterior, paths.beta)
    torch.testing.assert_close(found.posterior, expected)
    again = Calibration()
    again.load_state_dict(calibration.state_dict())
    torch.testing.assert_close(again(p, tree).posterior, found.posterior)
    assert kind.beta != 1 != species.beta
