from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical

from dhocl.nn.heads.predla import PredLA, analytic_softmax, mix
from dhocl.nn.losses import mixture_nll
from dhocl.nn.optim import Optimizer

seeds = st.integers(0, 1000)


def entropy_gap(z_linear: torch.Tensor, z_analytic: torch.Tensor, tau: torch.Tensor, delta: float) -> torch.Tensor:
    """What the temperatures are to make small, as defined."""
    gap = Categorical(logits=z_linear / tau[0]).entropy() - Categorical(logits=z_analytic / tau[1]).entropy()
    return (gap.abs() - delta).clamp_min(0).mean()


def predla(lr_tau: float = 0.1) -> PredLA:
    combiner = PredLA(Optimizer(0.0), 0.05, lr_tau, delta=0.5)
    combiner.grow([0, 2])
    return combiner


def test_a_temperature_holds_for_any_number_of_classes() -> None:
    """Outputs that shrink as 1 / √C keep the same odds between two classes."""
    few, many = (analytic_softmax(torch.eye(1, c) / c**0.5, 0.3)[0] for c in (4, 400))
    torch.testing.assert_close(few[0] / few[1], many[0] / many[1])


@given(seeds, st.floats(0.05, 5), st.floats(0.05, 5))
def test_mixture_is_a_distribution_between_its_parts(seed: int, tau_l: float, tau_a: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    z_l, z_a = torch.randn(4, 7, generator=generator), torch.rand(4, 7, generator=generator)
    tau = torch.tensor([tau_l, tau_a])
    p_l, p_a = (z_l / tau_l).softmax(1), (z_a / tau_a).softmax(1)
    p = mix(z_l, z_a, torch.tensor([0.3, 0.7]), tau)
    torch.testing.assert_close(p, 0.3 * p_l + 0.7 * p_a)
    assert (p <= torch.maximum(p_l, p_a) + 1e-6).all()
    assert (p >= torch.minimum(p_l, p_a) - 1e-6).all()
    torch.testing.assert_close(mix(z_l, z_a, torch.tensor([1.0, 0.0]), tau), p_l)


def test_temperatures_stay_while_entropies_differ_by_less_than_the_tolerance() -> None:
    combiner, z = predla(), torch.eye(6)
    flat = torch.zeros_like(z)
    gap = entropy_gap(z, flat, combiner.tau(0), delta=0.0)
    assert 0.01 < gap < 0.5
    before = combiner.tau(0)
    combiner.match_entropies({0: z, 2: z}, {0: flat, 2: flat})
    assert torch.equal(combiner.tau(0), before)


@given(seeds)
def test_one_step_on_tau_is_the_gradient_by_finite_differences(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    linear = {0: torch.randn(6, 5, generator=generator).double() * 4}
    analytic = {0: torch.rand(6, 5, generator=generator).double()}
    combiner = PredLA(Optimizer(0.0), 0.05, 0.01, delta=0.1)
    combiner.grow([0])
    before = combiner.tau(0).double().log()

    def loss(log_tau: torch.Tensor) -> float:
        return entropy_gap(linear[0], analytic[0], log_tau.exp(), 0.1).item()

    eps = 1e-5
    slope = [(loss(before + eps * unit) - loss(before - eps * unit)) / (2 * eps) for unit in torch.eye(2).double()]
    combiner.match_entropies(linear, analytic)
    moved = combiner.tau(0).double().log() - before
    torch.testing.assert_close(moved, -0.01 * torch.tensor(slope).double(), rtol=1e-2, atol=1e-5)


def test_temperatures_settle_where_entropies_agree() -> None:
    torch.manual_seed(0)
    linear, analytic = torch.randn(64, 10) * 3, torch.rand(64, 10)
    combiner = predla(lr_tau=0.2)
    start = entropy_gap(linear, analytic, combiner.tau(0), 0.5)
    for _ in range(300):
        combiner.match_entropies({0: linear}, {0: analytic})
    assert entropy_gap(linear, analytic, combiner.tau(0), 0.5) < start / 3


def test_alpha_learns_which_head_is_right() -> None:
    optimizer = Optimizer(0.0)
    combiner = PredLA(optimizer, 0.05, 0.0, delta=0.5)
    combiner.grow([0])
    torch.manual_seed(0)
    y = torch.randint(5, (64, 1))
    good, bad = 5.0 * torch.nn.functional.one_hot(y[:, 0], 5), torch.randn(64, 5)
    for _ in range(200):
        optimizer.step(mixture_nll(combiner({0: bad}, {0: good}), y))
    assert combiner.alpha(0)[1] > 0.9


def test_state_survives_a_restart() -> None:
    first = predla()
    first.match_entropies({0: torch.randn(4, 3), 2: torch.randn(4, 9)}, {0: torch.rand(4, 3), 2: torch.rand(4, 9)})
    second = PredLA(Optimizer(0.0), 0.05, 0.1, delta=0.5)
    second.load_state_dict(first.state_dict())
    assert second.stats() == first.stats()


def test_a_combiner_is_what_its_state_says() -> None:
    first, other = predla(), PredLA(Optimizer(0.0), 0.05, 0.1, delta=0.5)
    with torch.no_grad():
        first._logits[0].copy_(torch.tensor([1.0, -1.0]))
    first.match_entropies({2: 5 * torch.eye(6)}, {2: torch.zeros(6, 6)})
    state = first.state_dict()
    other.load_state_dict(state)
    assert other.stats() == first.stats()
    assert other.alpha(0)[0] > 0.8
    assert other.tau(2)[0] > 1
    assert not any(tensor.requires_grad for level in state.values() for tensor in level.values())
