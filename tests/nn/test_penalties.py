"""Penalties of parts: steps by hand, and that they find the parts that matter."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dhocl.nn.heads.penalties import FEWEST, Penalties
from dhocl.nn.heads.ridge import LeaveOneOut, factor


def steps(*gradients: list[float], spread: float = 0.0) -> Penalties:
    """Of parts with 2 and 1 features; each gradient is that of both parts, with some spread over samples."""
    penalties = Penalties([2, 1], [1.0, 4.0])
    for a, b in gradients:
        rows = torch.tensor([[a / 2, a / 2, b]]).repeat(FEWEST, 1)
        rows[:, 0] += spread * (-1.0) ** torch.arange(FEWEST)
        penalties.learn(rows, 0)
    return penalties


def test_before_a_step_they_are_those_of_the_start() -> None:
    assert Penalties([2, 1], [1.0, 4.0])(3).tolist() == [1, 1, 4]
    few = Penalties([1], [1.0])
    few.learn(torch.ones(FEWEST - 1, 1), 0)
    assert few.log == {}


def test_steps_go_against_the_gradient_whatever_its_size() -> None:
    penalties = steps([1e-3, -50.0])
    assert penalties.log[0].tolist() == pytest.approx([-0.5, math.log(4) + 0.5])
    assert penalties(0).tolist() == pytest.approx([math.exp(-0.5)] * 2 + [4 * math.exp(0.5)])
    assert penalties(1).tolist() == [1, 1, 4]


def test_steps_grow_in_one_direction_and_halve_when_it_turns() -> None:
    expected = -0.5 - 0.6 + 0.3 + 0.36
    assert steps([1, 0], [1, 0], [-1, 0], [-1, 0]).log[0].tolist() == pytest.approx([expected, math.log(4)])


def test_steps_have_bounds() -> None:
    grown = steps(*[[1.0, -1.0]] * 30).log[0].exp()
    assert grown.tolist() == pytest.approx([0.01, 200])
    turning = steps(*[[(-1.0) ** i, 0.0] for i in range(20)])
    before = turning.log[0][0]
    turning.learn(torch.ones(FEWEST, 3), 0)
    assert abs(turning.log[0][0] - before) == pytest.approx(0.05)
    assert steps(*[[-1.0, 0.0]] * 6).log[0][0] == pytest.approx(0.5 + 0.6 + 0.72 + 0.864 + 1 + 1)


def test_a_gradient_that_could_be_chance_is_ignored_and_remembered_as_nothing() -> None:
    error = 1 / math.sqrt(FEWEST)
    assert steps([0.9 * error, 0.0], spread=1.0).log[0][0] == 0
    assert steps([1.1 * error, 0.0], spread=1.0).log[0][0] == -0.5
    again = steps([1.0, 0.0], [0.0, 0.0], [1.0, 0.0]).log[0][0]  # the middle one changes nothing
    assert again == pytest.approx(-0.5 - 0.6)


def test_state() -> None:
    one, other = steps([1, -1], [1, 1]), Penalties([2, 1], [1.0, 4.0])
    other.load_state_dict(one.state_dict())
    for each in (one, other):
        each.learn(torch.ones(FEWEST, 3), 0)
    assert torch.equal(one(0), other(0))


def test_a_part_of_noise_is_penalised_and_the_other_is_not() -> None:
    """Labels depend on the second part; the first is noise of the same length."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (120,), generator=generator)
    noise, signal = torch.randn(120, 8, generator=generator), torch.randn(120, 4, generator=generator)
    signal[torch.arange(120), y] += 2.0
    phi, targets = torch.cat([noise, signal], 1) / 4, torch.nn.functional.one_hot(y, 3).float()
    penalties = Penalties([8, 4], [1.0, 1.0])

    def left_out() -> tuple[LeaveOneOut, Tensor]:
        gamma = penalties(0)
        L = factor(phi.t() @ phi, gamma)
        return LeaveOneOut(phi, y, L, targets.t() @ phi), gamma

    def error(out: LeaveOneOut) -> float:
        return float((out.z - targets).square().sum(1).mean())

    first = error(left_out()[0])
    for _ in range(20):
        out, gamma = left_out()
        penalties.learn(out.slopes(2 * (out.z - targets), gamma), 0)
    assert penalties(0)[0] > 20 * penalties(0)[-1]
    assert error(left_out()[0]) < first - 0.01
