from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.service.beliefs import believe, described
from dhocl.service.calibration import Sharpness, gradients, sharpened
from dhocl.service.progress import POINTS, RECENT, Progress
from dhocl.taxonomy import Label, Taxonomy


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


def tree() -> Taxonomy:
    taxonomy = Taxonomy()
    bird, fish = taxonomy.add(Label("bird", 0)), taxonomy.add(Label("fish", 0))
    for name, parent in [("robin", bird), ("crow", bird), ("cod", fish)]:
        taxonomy.link(taxonomy.add(Label(name, 1)), parent)
    return taxonomy


def test_a_path_is_consistent_and_its_probabilities_add_up() -> None:
    taxonomy = tree()
    paths = torch.tensor([[0, 0], [0, 1], [1, 2]])
    p = {0: torch.tensor([[0.6, 0.4]]), 1: torch.tensor([[0.3, 0.25, 0.45]])}
    found = described(believe(p, paths, {0: 1.0, 1: 1.0}, 1.0), 0, taxonomy, ["kind", "species"], 0.5)
    weights = {"robin": 0.6 * 0.3, "crow": 0.6 * 0.25, "cod": 0.4 * 0.45}  # by hand
    total = sum(weights.values())
    assert found["ranks"]["species"] == {"name": "cod", "probability": pytest.approx(0.45)}
    assert [node["name"] for node in found["path"]] == ["bird", "robin"]
    assert found["path"][0]["probability"] == pytest.approx((weights["robin"] + weights["crow"]) / total)
    assert found["path"][1]["probability"] == pytest.approx(weights["robin"] / total)
    assert found["answer"] == found["path"][0], "robin is not sure enough"


@pytest.mark.parametrize(("confidence", "answer"), [(0.0, "robin"), (0.9, None)])
def test_how_deep_an_answer_goes(confidence: float, answer: str | None) -> None:
    p = {0: torch.tensor([[0.6, 0.4]]), 1: torch.tensor([[0.4, 0.25, 0.35]])}
    paths = torch.tensor([[0, 0], [0, 1], [1, 2]])
    found = described(believe(p, paths, {0: 1.0, 1: 1.0}, 1.0), 0, tree(), ["kind", "species"], confidence)
    assert (found["answer"] and found["answer"]["name"]) == answer


def test_progress_counts_and_remembers() -> None:
    progress, rights = Progress(["kind", "species"]), [True, False, False, True, True]
    for right in rights:
        progress.add("species", right)
    summary = progress.summary()
    assert summary["species"] == {"seen": 5, "correct": 3, "accuracy": 0.6, "recent": 0.6}
    assert summary["kind"] == {"seen": 0, "correct": 0, "accuracy": None, "recent": None}
    for _ in range(RECENT):
        progress.add("species", True)
    assert progress.summary()["species"]["recent"] == 1.0
    assert progress.summary()["species"]["accuracy"] == pytest.approx((3 + RECENT) / (5 + RECENT))


def test_a_long_history_stays_short_and_even() -> None:
    progress = Progress(["kind"])
    progress.add("kind", True)
    for learned in range(0, 200_000, 32):
        progress.mark(learned)
    points = [point["learned"] for point in progress.history]
    assert POINTS / 4 <= len(points) <= POINTS
    gaps = np.diff(points)
    assert gaps.min() > 0
    assert gaps.max() <= 4 * np.median(gaps)
    again = Progress(["kind"])
    again.load_state_dict(progress.state_dict())
    for each in (progress, again):
        each.mark(10**6)
    assert again.history == progress.history
