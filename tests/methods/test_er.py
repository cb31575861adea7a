from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import get_args

import pytest
import torch
from torch import Tensor

from dhocl.checks import assert_valid, exam, feed, setup, stream
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch, PeriodicSettings
from dhocl.nn.losses import multi_ce
from dhocl.nn.memory import Memory, Reservoir
from dhocl.nn.network import Output
from dhocl.nn.objectives import LossName
from tests.helpers.reference_others import assert_same_steps, watched
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


def test_an_epoch_steps_over_every_stored_item_once_in_random_order() -> None:
    learner = ER(setup(buffer=20, replay_batch=4), ReplaySettings())
    tree = feed(learner, stream(5)).taxonomy
    twin, steps = copy.deepcopy(learner), watched(learner.net)
    learner.epoch(8, tree)
    order, by_hand = twin.rng.permutation(20), watched(twin.net)
    for slots in (order[:8], order[8:16], order[16:]):
        x, y = twin.memory.columns["x"][slots], twin.memory.columns["y"][slots].tolist()
        twin.net.step(haf(twin.net, augment(x, twin.rng, flip=True), y, tree))
    assert_same_steps(steps, by_hand)


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


class OwnMemory(ER):
    """A variant whose memory depends on the set-up and the settings."""

    def make_memory(self) -> Memory:
        return Reservoir(self.setup.buffer // (2 if self.settings.loss == "hxe" else 1), self.rng)


def test_a_variant_makes_its_memory_from_setup_and_settings() -> None:
    assert OwnMemory(setup(buffer=20), ReplaySettings()).memory.capacity == 20
    assert OwnMemory(setup(buffer=20), ReplaySettings(loss="hxe")).memory.capacity == 10


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


def test_without_a_known_length_it_is_time_every_500_samples() -> None:
    endless, known = setup(), setup()._replace(samples=2005)
    assert [PeriodicSettings().due(endless, seen, 8) for seen in (496, 500, 504, 508, 1000)] == [0, 1, 1, 0, 1]
    assert [PeriodicSettings().due(known, seen, 8) for seen in (200, 201, 208, 209, 402)] == [0, 1, 1, 0, 1]
    assert PeriodicSettings(every=3).due(known, 12, 7) == 3
