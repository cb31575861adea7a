from __future__ import annotations

import pytest
import torch

from dhocl.checks import setup, stream
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


def test_everything_is_kept() -> None:
    memory = Everything(0, Rng(0, "memory"))
    for start in range(0, 50, 7):
        memory.insert(y=torch.arange(start, min(50, start + 7)))
    assert memory.columns["y"][: memory.size].tolist() == list(range(50))


def test_joint_steps_like_replay_from_all_images_and_then_further() -> None:
    learner = Joint(setup(buffer=0, replay_batch=4), JointSettings(steps=2))
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
        assert len(steps) == 3
        for step in steps[1:]:
            x, y = stored(held, rng.choice(len(held), min(12, len(held)), replace=False, shuffle=False))
            assert_step(step, haf(step.before, augment(x, rng, flip=True), y, tree))
    assert_holds(learner, held)
