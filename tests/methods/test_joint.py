from __future__ import annotations

import pytest
import torch

from dhocl.checks import feed, setup, stream
from dhocl.core.rng import Rng
from dhocl.methods.joint import Joint, JointSettings
from dhocl.nn.augment import augment
from dhocl.nn.memory import Everything
from tests.helpers.reference_replay import (
    Item,
    arriving,
    assert_holds,
    assert_step,
    draws,
    haf,
    late_links,
    learn,
    stored,
)


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


def test_joint_steps_like_replay_from_all_images_and_then_goes_over_them() -> None:
    learner = Joint(setup(buffer=0, replay_batch=4), JointSettings(every=24, epochs=2))
    rng, held = draws(), list[Item]()
    for seen, (batch, tree, steps, stats) in zip(range(0, 64, 8), learn(learner, stream(8), late_links()), strict=True):
        slots = rng.choice(len(held), min(4, len(held)), replace=False, shuffle=False) if held else []
        loss = haf(steps[0].before, augment(batch.x, rng, flip=True), batch.y.tolist(), tree)
        if len(slots):
            x, y = stored(held, slots)
            loss = loss + haf(steps[0].before, augment(x, rng, flip=True), y, tree)
        assert_step(steps[0], loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
        held += arriving(batch, seen)
        rounds = iter(steps[1:])
        for _ in range(2 if len(held) in (24, 48) else 0):
            order = rng.permutation(len(held))
            for start in range(0, len(held), 12):
                x, y = stored(held, order[start : start + 12])
                step = next(rounds)
                assert_step(step, haf(step.before, augment(x, rng, flip=True), y, tree))
        assert next(rounds, None) is None
    assert_holds(learner, held)


@pytest.mark.parametrize(("samples", "every", "rounds"), [(80, 0, 10), (None, 0, 0), (77, 0, 10), (80, 16, 5)])
def test_joint_goes_over_its_images_ten_times_a_stream(samples: int | None, every: int, rounds: int) -> None:
    learner = Joint(setup()._replace(samples=samples), JointSettings(every=every))
    passes: list[int] = []
    learner.epoch = lambda b, taxonomy: passes.append(b)  # type: ignore[method-assign]
    feed(learner, stream(10))
    assert passes == [12] * 2 * rounds, "two epochs each"
