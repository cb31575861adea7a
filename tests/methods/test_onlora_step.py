"""A step of onlora against a slow recomputation, and the importance that its penalty is made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dhocl.checks import feed, setup, stream
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.onlora import Adapters, OnLoRA, OnLoraSettings
from dhocl.nn import backbones
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch
from tests.helpers.reference_others import (
    arriving,
    assert_same_state,
    assert_same_steps,
    path,
    slow_multi_ce,
    twins,
    watched,
)
from tests.helpers.small_onlora import EAGER, known, trained

# -- importance ------------------------------------------------------------------------------------------------


def test_omega_is_the_mean_over_merges_and_never_negative() -> None:
    learner = OnLoRA(setup(), OnLoraSettings())
    generator = torch.Generator().manual_seed(0)
    given = [[torch.rand(p.shape, generator=generator) for p in learner.adapters.parameters()] for _ in range(5)]
    for importance in given:
        learner.adapters.merge(importance)
    for i, omega in enumerate(learner.adapters.omega):
        torch.testing.assert_close(omega, torch.stack([importance[i] for importance in given]).mean(0))
        assert (omega >= 0).all()


def test_importance_is_the_sum_of_squared_gradients_of_each_image(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = trained(backbones.load("tiny"), plateau_mean=0.0)
    given: list[list[Tensor]] = []
    monkeypatch.setattr(learner.adapters, "merge", given.append)
    images, parameters = known(1, seed=4)[0].x[:3], learner.adapters.parameters()
    learner.consolidate(list(images))
    expected = [torch.zeros_like(p) for p in parameters]
    for x in images:
        logits = learner.net(x[None]).logits
        losses = [nn.functional.cross_entropy(z, z.argmax(1)) for z in logits.values()]
        for total, g in zip(expected, torch.autograd.grad(sum(losses) / len(losses), parameters), strict=True):
            total += g**2
    for got, want in zip(given[0], expected, strict=True):
        torch.testing.assert_close(got, want, atol=1e-8, rtol=1e-3)
    assert max(want.max() for want in expected) > 0


def test_importance_is_of_the_images_that_were_hardest_when_last_seen() -> None:
    learner = OnLoRA(setup(), OnLoraSettings(hard=3))
    assert learner.hardest() == []
    feed(learner, stream(1))
    learner.memory.columns["loss"][:8] = torch.tensor([0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6])
    for got, slot in zip(learner.hardest(), (1, 3, 5), strict=True):
        assert torch.equal(got, learner.memory.columns["x"][slot])


def test_the_penalty_is_half_of_omega_times_squared_changes() -> None:
    adapters = Adapters(backbones.load("tiny"), 4, Rng(0, "test"))
    assert adapters.penalty().item() == 0
    adapters.merge([torch.full_like(p, 0.5) for p in adapters.parameters()])
    assert adapters.penalty().item() == 0, "nothing has changed since the merge"
    with torch.no_grad():
        for place, p in enumerate(adapters.parameters()):
            p += 0.01 * place
    expected = sum(0.25 * (0.01 * place) ** 2 * p.numel() for place, p in enumerate(adapters.parameters()))
    assert adapters.penalty().item() == pytest.approx(expected, rel=1e-4)


# -- a step recomputed -----------------------------------------------------------------------------------------


def relative_loss(logits: dict[int, Tensor], tree: Taxonomy, i: int, node: int) -> dict[int, float]:
    """By level, cross-entropy over that of a guess."""
    return {
        level: nn.functional.cross_entropy(z[i], torch.tensor(column)).item() / math.log(max(2, z.shape[1]))
        for (level, z), column in zip(logits.items(), path(tree, node), strict=True)
        if column >= 0
    }


def reference_step(twin: OnLoRA, batch: Batch, tree: Taxonomy, hard: bool) -> dict[str, float]:
    twin.net.grow(tree)
    size, lows = twin.memory.size, twin.adapters._ranks
    slots = np.arange(size) if hard else twin.rng.choice(size, size=min(4, size), replace=False, shuffle=False)
    held = {name: column[torch.from_numpy(slots)] for name, column in twin.memory.columns.items()}
    if hard and size:  # one batch of all
        both = twin.net(augment(torch.cat([batch.x, held["x"]]), twin.rng, True)).logits
        logits, again = ({level: z[rows] for level, z in both.items()} for rows in (slice(0, 8), slice(8, None)))
        task = slow_multi_ce(both, torch.cat([batch.y, held["y"]]), tree)
    else:
        logits = twin.net(augment(batch.x, twin.rng, True)).logits
        task = slow_multi_ce(logits, batch.y, tree)
        if size:
            again = twin.net(augment(held["x"], twin.rng, True)).logits
            task = task + slow_multi_ce(again, held["y"], tree)
    penalty = torch.zeros(())
    for omega, change in zip(twin.adapters.omega, [c for low in lows for c in (low.A - low.start, low.B)], strict=True):
        penalty = penalty + 2000 / 2 * (omega * change**2).sum()
    twin.net.step(task + penalty)

    for row, slot in enumerate(slots):
        losses = relative_loss(again, tree, row, int(held["y"][row]))
        twin.memory.columns["loss"][slot] = np.mean(list(losses.values()))
    new = [relative_loss(logits, tree, i, node) for i, node in enumerate(batch.y.tolist())]
    by_level = [
        np.mean([row[level] for row in new if level in row])
        for level in tree.levels
        if any(level in row for row in new)
    ]
    if twin.plateau.reached(float(np.mean(by_level))):
        reference_merge(twin)
    twin.memory.insert(x=batch.x, y=batch.y, loss=torch.tensor([np.mean(list(row.values())) for row in new]).float())
    return {"loss": task.item(), "loss.penalty": penalty.item(), "merges": float(twin.adapters.merges)}


def reference_merge(twin: OnLoRA) -> None:
    adapters, size = twin.adapters, twin.memory.size
    importance = [torch.zeros_like(p) for p in adapters.parameters()]
    for slot in sorted(range(size), key=lambda slot: -twin.memory.columns["loss"][slot])[:3]:
        logits = twin.net(twin.memory.columns["x"][slot][None]).logits
        loss = sum(-z.log_softmax(1).max() for z in logits.values()) / len(logits)
        for total, gradient in zip(importance, torch.autograd.grad(loss, adapters.parameters()), strict=True):
            total += gradient**2
    adapters.merges += 1
    for omega, new in zip(adapters.omega, importance, strict=True):
        omega += (new - omega) / adapters.merges
    with torch.no_grad():
        for host, low in zip(adapters._hosts, adapters._ranks, strict=True):
            weight = host.parametrizations.weight.original
            weight += (low.B @ low.A).view_as(weight)
            bound = 1 / math.sqrt(low.A.shape[1])
            low.start.copy_(torch.from_numpy(adapters._rng.uniform(-bound, bound, low.A.shape)))
            low.A.copy_(low.start)
            low.B.zero_()
    heads = {name: moments for name, moments in twin.net.optimizer.state_dict().items() if "linear" in name}
    twin.net.optimizer.load_state_dict(heads)


def test_the_eager_ones_do_merge() -> None:
    learner = OnLoRA(setup(), OnLoraSettings(**EAGER))
    curator = feed(learner, stream(10)[:5])
    before = learner.adapters.merges
    feed(learner, stream(10)[5:], curator)
    assert 0 < before < learner.adapters.merges


@pytest.mark.parametrize("memory", ["reservoir", "hard"])
def test_a_step_is_the_task_on_stream_and_memory_with_the_penalty_and_then_a_merge(memory: Any) -> None:
    def make() -> OnLoRA:
        return OnLoRA(setup(buffer=12), OnLoraSettings(memory=memory, hard=3, lr_backbone=1e-2, **EAGER))

    learner, penalties, merges = make(), [], []
    steps = watched(learner.net)
    for batch, tree in arriving(10):
        twin = twins(make, learner)
        wanted = watched(twin.net)
        stats = reference_step(twin, batch, tree, memory == "hard")
        assert learner.learn(batch, tree) == pytest.approx(stats, rel=1e-3, abs=1e-5)
        assert_same_steps(steps[-1:], wanted)
        assert_same_state(learner.state_dict(), twin.state_dict())
        penalties.append(stats["loss.penalty"])
        merges.append(stats["merges"])
    assert len(steps) == 10, "one step a batch"
    assert max(merges) >= 2, "otherwise Ω is no mean"
    assert max(penalties) > 1e-3, "otherwise a missing penalty would not be seen"
