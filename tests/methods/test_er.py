from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest
import torch
from torch import Tensor

from dhocl.checks import assert_valid, exam, feed, setup, stream
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.finetune import Finetune
from dhocl.methods.joint import Joint, JointSettings
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch, PeriodicSettings
from dhocl.nn.losses import multi_ce
from dhocl.nn.network import Output
from dhocl.nn.objectives import LossName
from tests.helpers.reference_replay import (
    Item,
    arriving,
    assert_holds,
    assert_step,
    draws,
    haf,
    late_links,
    learn,
    reservoir,
    stored,
)


def test_a_step_of_er_is_the_loss_of_the_stream_plus_that_of_the_replay_batch() -> None:
    learner, curator = ER(setup(buffer=20, replay_batch=4), ReplaySettings()), late_links()
    history = learn(learner, stream(10), curator)
    tree = curator.taxonomy
    tree.merge(tree.id(Label("crow", 1)), tree.id(Label("robin", 1)))
    history += learn(learner, stream(2, seed=1), curator)
    rng, held, completed = draws(), list[Item](), 0
    for seen, (batch, tree, (step,), stats) in zip(range(0, 96, 8), history, strict=True):
        held = [item._replace(y=tree.accepted(item.y)) for item in held]
        slots = rng.choice(len(held), min(4, len(held)), replace=False, shuffle=False) if held else []
        loss = haf(step.before, augment(batch.x, rng, flip=True), batch.y.tolist(), tree)
        if len(slots):
            x, y = stored(held, slots)
            loss = loss + haf(step.before, augment(x, rng, flip=True), y, tree)
            completed += sum(tree.parent(node) != -1 for node in y)
        assert_step(step, loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
        reservoir(held, arriving(batch, seen), 20, rng)
    assert completed > 5, "targets above the label were replayed"
    assert_holds(learner, held)
    assert torch.equal(learner.held(), torch.tensor([item.y for item in held]))


def test_each_batch_is_augmented_as_many_times_as_the_loss_takes_copies() -> None:
    learner = ER(setup(buffer=20, replay_batch=4), ReplaySettings(loss="hcon"))
    curator = feed(learner, stream(4))
    outputs: list[Output] = []
    objective = learner.objective

    def recorded(output: Output, targets: Tensor, taxonomy: Taxonomy) -> Tensor:
        outputs.append(output)
        return objective(output, targets, taxonomy)

    recorded.copies = 2  # type: ignore[attr-defined]
    learner.objective = recorded  # type: ignore[assignment]
    batches = [Batch(x, curator.observe(labels)) for x, labels in stream(2, seed=1)]
    batches[1] = Batch(batches[1].x[:3], batches[1].y[:3])
    rng = draws()
    rng.load_state_dict(learner.rng.state_dict())
    learner.loss(batches, curator.taxonomy)
    for batch, output in zip(batches, outputs, strict=True):
        views = torch.cat([augment(batch.x, rng, flip=True) for _ in range(2)])
        torch.testing.assert_close(output.features, learner.net.f(views)[0])


class OwnStreamLoss(ER):
    """A variant that takes the chosen loss on replayed images only."""

    def objectives(self, outputs: Sequence[Output], batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        own = multi_ce(outputs[0].logits, taxonomy.complete(batches[0].y))
        return own + super().objectives(outputs[1:], batches[1:], taxonomy)


@pytest.mark.parametrize("loss", get_args(LossName))
def test_a_variant_with_its_own_loss_on_the_stream_works_with_every_loss(loss: LossName) -> None:
    x, _ = exam()
    learner, curator = OwnStreamLoss(setup(), ReplaySettings(loss=loss)), None
    for batch in stream(4):
        curator = feed(learner, [batch], curator)
        assert_valid(learner.predict(x), curator.taxonomy, len(x))


def test_a_step_of_finetune_is_the_loss_of_the_stream_and_nothing_is_stored() -> None:
    learner = Finetune(setup(buffer=20, replay_batch=4), ReplaySettings())
    rng = draws()
    for batch, tree, (step,), stats in learn(learner, stream(8), late_links()):
        loss = haf(step.before, augment(batch.x, rng, flip=True), batch.y.tolist(), tree)
        rng.random(8)  # a reservoir without a place draws as one with places does
        assert_step(step, loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
    assert len(learner.held()) == 0


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
    learner = Joint(setup()._replace(samples=samples), JointSettings(every=every, epochs=1))
    passes: list[int] = []
    learner.epoch = lambda b, taxonomy: passes.append(b)  # type: ignore[method-assign]
    feed(learner, stream(10))
    assert passes == [12] * rounds


def test_without_a_known_length_it_is_time_every_500_samples() -> None:
    endless, known = setup(), setup()._replace(samples=2005)
    assert [PeriodicSettings().due(endless, seen, 8) for seen in (496, 500, 504, 508, 1000)] == [0, 1, 1, 0, 1]
    assert [PeriodicSettings().due(known, seen, 8) for seen in (200, 201, 208, 209, 402)] == [0, 1, 1, 0, 1]
    assert PeriodicSettings(every=3).due(known, 12, 7) == 3
