from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.distributions import Categorical

from dhocl.checks import exam, feed, setup, stream
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.lwf import LwF, LwfSettings, distillation
from dhocl.nn.network import Network
from tests.helpers.reference_distil import Step, assert_remembered, assert_step, haf, steps, views


def logits(*widths: int, seed: int = 0) -> dict[int, Tensor]:
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


def test_without_distillation_it_is_plain_replay() -> None:
    plain, other = ER(setup(), ReplaySettings()), LwF(setup(), LwfSettings(distillation=0.0, every=12))
    for learner in (plain, other):
        feed(learner, stream(6))
    x, _ = exam()
    for level, p in plain.predict(x).items():
        assert torch.equal(p, other.predict(x)[level])


def loss_by_hand(step: Step, teacher: Network | None) -> Tensor:
    total = torch.zeros(())
    for pixels, y in views(step):
        output = step.twin.net(pixels)
        total = total + haf(output.logits, y, step.taxonomy)
        if teacher is None:
            continue
        known = {level: z.detach() for level, z in teacher(pixels).logits.items() if z.shape[1] > 1}
        for level, old in known.items():
            for row in range(len(y)):
                p, q = (old[row] / 3).softmax(0), (output.logits[level][row, : old.shape[1]] / 3).softmax(0)
                total = total - 0.7 * 9 * (p * q.log()).sum() / len(y) / len(known)
    return total


def test_steps_by_hand() -> None:
    learner = LwF(setup(), LwfSettings(distillation=0.7, temperature=3.0, every=20))
    teacher, copies = None, 0
    for number, step in enumerate(steps(learner, stream(6)), 1):  # 8 samples each; the fish come with the fourth
        assert_step(step, loss_by_hand(step, teacher))
        assert_remembered(step, learner)
        if number * 8 // 20 > (number - 1) * 8 // 20:
            teacher, copies = copy.deepcopy(learner.net), copies + 1
    assert copies == 2
