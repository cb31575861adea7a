"""ACIL's phase-wise formula and GACL's general one."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from dhocl.checks import feed, setup, stream
from dhocl.heads.analytic import AnalyticHead
from dhocl.methods.gacil import GACIL, GacilSettings
from dhocl.methods.joint import Everything, Joint, JointSettings
from dhocl.rng import Rng


def trained(columns: list[torch.Tensor], exposed: bool) -> tuple[AnalyticHead, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    phi = [torch.randn(len(c), 8, generator=generator) for c in columns]
    head = AnalyticHead(8, 0.5, exposed_labels=exposed)
    for x, c in zip(phi, columns, strict=True):
        head.grow(int(c.max()) + 1)
        head.learn(x, c)
    x, y = torch.cat(phi), F.one_hot(torch.cat(columns)).float()
    ridge = torch.linalg.solve(x.t() @ x + 0.5 * torch.eye(8), x.t() @ y).t()
    return head, ridge


def test_both_agree_with_ridge_when_classes_do_not_come_back() -> None:
    disjoint = [torch.tensor([0, 0, 1, 1]), torch.tensor([2, 2, 3]), torch.tensor([4, 4, 4, 4])]
    for exposed in (True, False):
        head, ridge = trained(disjoint, exposed)
        torch.testing.assert_close(head.W, ridge, rtol=1e-4, atol=1e-5)


def test_only_the_general_form_agrees_when_they_do() -> None:
    mixed = [torch.tensor([0, 0, 1]), torch.tensor([1, 0, 2]), torch.tensor([2, 1, 0, 3])]
    general, ridge = trained(mixed, exposed=True)
    torch.testing.assert_close(general.W, ridge, rtol=1e-4, atol=1e-5)
    phased, _ = trained(mixed, exposed=False)
    assert (phased.W - ridge).abs().max() > 0.05


def test_a_class_that_never_had_a_sample_scores_exactly_zero() -> None:
    head, _ = trained([torch.tensor([0, 0, 1])], exposed=True)
    head.grow(3)
    assert (head.W[2] == 0).all()


def test_gacil_widens_the_features() -> None:
    learner = GACIL(setup(), GacilSettings(expansion=40))
    feed(learner, stream(2))
    assert learner.analytic._level(1).R.shape == (40, 40)


def test_joint_keeps_everything_and_goes_over_it() -> None:
    memory = Everything(0, Rng(0, "memory"))
    for start in range(0, 50, 7):
        memory.insert(y=torch.arange(start, min(50, start + 7)))
    assert memory.columns["y"][: memory.size].tolist() == list(range(50))
    learner = Joint(setup(), JointSettings(every=16, epochs=3))
    rounds = []
    learner.epoch = lambda b, taxonomy: rounds.append(learner.memory.size)  # type: ignore[method-assign]
    feed(learner, stream(5))  # 8 a batch
    assert rounds == [16] * 3 + [32] * 3
