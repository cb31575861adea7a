"""LwF, EWC and the snapshot they lean on."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

from dhocl.checks import exam, feed, setup, stream
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.ewc import EWC, Consolidation, EwcSettings
from dhocl.methods.lwf import LwF, LwfSettings, distillation
from dhocl.snapshot import Snapshot


def logits(*widths: int, seed: int = 0) -> dict[int, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {level: torch.randn(5, width, generator=generator) for level, width in enumerate(widths)}


def test_a_student_that_equals_its_teacher_has_nothing_to_learn() -> None:
    teacher = logits(3, 6)
    student = {level: z.clone().requires_grad_() for level, z in teacher.items()}
    loss = distillation(student, teacher, temperature=6.0)
    loss.backward()
    assert all(z.grad.abs().max() < 1e-5 for z in student.values())
    expected = sum(36 * Categorical(logits=z / 6).entropy().mean() for z in teacher.values()) / 2
    torch.testing.assert_close(loss, expected)


def test_classes_that_came_after_the_teacher_get_no_gradient() -> None:
    teacher, student = logits(2, 3), {0: torch.randn(5, 2), 1: torch.randn(5, 7, requires_grad=True)}
    distillation(student, teacher, 2.0).backward()
    assert student[1].grad[:, 3:].abs().max() == 0
    assert student[1].grad[:, :3].abs().max() > 0


def test_distillation_ignores_a_constant_and_a_lone_class() -> None:
    teacher, student = logits(4), logits(4, seed=1)
    shifted = {0: student[0] + 7.0}
    torch.testing.assert_close(distillation(student, teacher, 2.0), distillation(shifted, teacher, 2.0))
    assert distillation({0: torch.randn(5, 4)}, {0: torch.randn(5, 1)}, 2.0) == 0


@pytest.mark.parametrize(
    ("method", "settings"),
    [(LwF, LwfSettings(distillation=0.0, every=12)), (EWC, EwcSettings(penalty=0.0, every=12))],
)
def test_without_its_term_a_method_is_plain_replay(method: type, settings: object) -> None:
    plain, other = ER(setup(), ReplaySettings()), method(setup(), settings)
    for learner in (plain, other):
        feed(learner, stream(6))
    x, _ = exam()
    for level, p in plain.predict(x).items():
        assert torch.equal(p, other.predict(x)[level])


def test_a_snapshot_says_what_the_network_said_then() -> None:
    learner = ER(setup(), ReplaySettings())
    curator = feed(learner, stream(3))
    x, _ = exam()
    then = learner.net(x)
    snapshot = Snapshot(learner.net)
    assert not snapshot.taken
    snapshot.take()
    feed(learner, stream(3, seed=1), curator)
    for level, z in snapshot(x).logits.items():
        torch.testing.assert_close(z, then.logits[level])
    assert not torch.allclose(learner.net(x).logits[1][:, :1], then.logits[1][:, :1])


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
