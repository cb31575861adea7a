from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dhocl.checks import exam, feed, setup, stream
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.ewc import EWC, Consolidation, EwcSettings
from tests.helpers.reference_distil import assert_remembered, assert_step, gradients_by_hand, haf, steps, views


class Quadratic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))


def test_penalty_is_zero_where_it_was_consolidated_and_quadratic_around() -> None:
    module = Quadratic()
    keeper = Consolidation(module, EwcSettings(penalty=3.0))
    assert keeper.penalty() == 0
    module.theta.grad = torch.tensor([1.0, 2.0, 3.0])
    keeper.observe()
    keeper.hold()
    loss = keeper.penalty()
    loss.backward()
    assert loss == 0
    torch.testing.assert_close(module.theta.grad, torch.tensor([1.0, 2.0, 3.0]))  # it added nothing
    with torch.no_grad():
        module.theta += torch.tensor([0.1, 0.2, -0.1])
    expected = 3 * (1 * 0.01 + 4 * 0.04 + 9 * 0.01)
    assert math.isclose(keeper.penalty().item(), expected, rel_tol=1e-5)


def test_fisher_is_a_running_mean_of_squared_gradients() -> None:
    module = Quadratic()
    keeper = Consolidation(module, EwcSettings(fisher_rate=0.25))
    by_hand = None
    for step in range(6):
        module.theta.grad = torch.randn(3, generator=torch.Generator().manual_seed(step))
        keeper.observe()
        square = module.theta.grad.square()
        by_hand = square if by_hand is None else 0.75 * by_hand + 0.25 * square
    torch.testing.assert_close(keeper.fisher["theta"], by_hand)


def test_penalised_optimum_of_a_quadratic_is_the_closed_form() -> None:
    """(H + 2λF) θ = H θ_new + 2λF θ*."""
    module = Quadratic()
    keeper = Consolidation(module, EwcSettings(penalty=0.7))
    module.theta.grad = torch.tensor([1.0, 0.5, 2.0])
    keeper.observe()
    keeper.hold()
    star, F = module.theta.detach().clone(), keeper.held["theta"]["fisher"]
    H, new = torch.tensor([2.0, 1.0, 3.0]), torch.tensor([-1.0, 1.0, 2.0])
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    for _ in range(800):
        optimizer.zero_grad()
        (0.5 * (H * (module.theta - new).square()).sum() + keeper.penalty()).backward()
        optimizer.step()
    torch.testing.assert_close(module.theta.detach(), (H * new + 1.4 * F * star) / (H + 1.4 * F), rtol=1e-4, atol=1e-5)


def test_without_a_penalty_it_is_plain_replay() -> None:
    plain, other = ER(setup(), ReplaySettings()), EWC(setup(), EwcSettings(penalty=0.0, every=12))
    for learner in (plain, other):
        feed(learner, stream(6))
    x, _ = exam()
    for level, p in plain.predict(x).items():
        assert torch.equal(p, other.predict(x)[level])


def test_steps_by_hand() -> None:
    learner = EWC(setup(), EwcSettings(penalty=1e5, fisher_rate=0.3, every=20, lr_backbone=1e-3))
    fisher: dict[str, Tensor] = {}
    held: dict[str, tuple[Tensor, Tensor]] = {}  # name -> value, fisher
    penalties = []
    for number, step in enumerate(steps(learner, stream(8)), 1):  # 8 samples each; the fish come with the fifth
        rows = [(step.twin.net(pixels), y) for pixels, y in views(step)]
        loss = torch.stack([haf(output.logits, y, step.taxonomy) for output, y in rows]).sum()
        weights = dict(step.twin.net.f.named_parameters())
        penalty = torch.zeros(())
        for name, (value, importance) in held.items():
            penalty = penalty + 1e5 * (importance * (weights[name] - value) ** 2).sum()
        assert_step(step, loss + penalty)
        assert_remembered(step, learner)
        penalties.append(penalty.item())
        gradients = gradients_by_hand(step.twin, loss)  # of the data alone
        for name in weights:
            square = gradients[f"f.{name}"] ** 2
            fisher[name] = 0.7 * fisher[name] + 0.3 * square if name in fisher else square
        if number * 8 // 20 > (number - 1) * 8 // 20:
            now = dict(learner.net.f.named_parameters())
            held = {name: (p.detach().clone(), fisher[name].clone()) for name, p in now.items()}
    assert [p > 0.1 for p in penalties] == [False] * 4 + [True, False, True, True]
