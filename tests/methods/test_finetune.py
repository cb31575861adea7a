from __future__ import annotations

import pytest

from dhocl.checks import setup, stream
from dhocl.methods.er import ReplaySettings
from dhocl.methods.finetune import Finetune
from dhocl.nn.augment import augment
from tests.helpers.reference_replay import assert_step, draws, haf, late_links, learn


def test_a_step_of_finetune_is_the_loss_of_the_stream_and_nothing_is_stored() -> None:
    learner = Finetune(setup(buffer=20, replay_batch=4), ReplaySettings())
    rng = draws()
    for batch, tree, (step,), stats in learn(learner, stream(8), late_links()):
        loss = haf(step.before, augment(batch.x, rng, flip=True), batch.y.tolist(), tree)
        rng.random(8)  # a reservoir without a place draws as one with places does
        assert_step(step, loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
    assert len(learner.held()) == 0
