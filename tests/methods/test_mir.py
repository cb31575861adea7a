from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from dhocl.checks import feed, setup, stream
from dhocl.methods.mir import MIR, MirSettings
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch
from tests.helpers.reference_replay import (
    Item,
    arriving,
    assert_holds,
    assert_step,
    draws,
    haf,
    late_links,
    learn,
    nll,
    reservoir,
    stored,
)


def learned(**settings: float) -> tuple[MIR, Batch, Batch, object]:
    learner = MIR(setup(buffer=40, replay_batch=4), MirSettings(candidates=20, **settings))
    curator = feed(learner, stream(8))
    (x, labels) = stream(1, seed=7)[0]
    items = learner.memory.read(torch.arange(12).numpy())
    return learner, Batch(x, curator.observe(labels)), Batch(items["x"], items["y"]), curator.taxonomy


def test_no_virtual_step_no_interference() -> None:
    learner, batch, candidates, taxonomy = learned(virtual_lr=0.0)
    assert learner.interference(batch, candidates, taxonomy).abs().max() == 0


def test_looking_ahead_leaves_the_network_as_it_was() -> None:
    learner, batch, candidates, taxonomy = learned(virtual_lr=0.5)
    before = [p.clone() for p in learner.net.optimizer.parameters()]
    learner.interference(batch, candidates, taxonomy)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.net.optimizer.parameters(), strict=True))


def test_interference_is_the_first_order_change_for_small_steps() -> None:
    """score → -lr <gradient of the candidate's loss, gradient of the stream's loss>."""
    learner, batch, candidates, taxonomy = learned(virtual_lr=1e-3)
    parameters = learner.net.optimizer.parameters()
    state = learner.rng.state_dict()
    g = torch.autograd.grad(learner.loss([batch], taxonomy), parameters, allow_unused=True)
    learner.rng.load_state_dict(state)  # the same augmentation again
    scores = learner.interference(batch, candidates, taxonomy)
    expected = []
    for row in range(len(candidates.y)):
        ((level, _, column),) = taxonomy.by_level(candidates.y[[row]])
        own = F.cross_entropy(learner.net(candidates.x[[row]]).logits[level], column)
        h = torch.autograd.grad(own, parameters, allow_unused=True)
        expected.append(
            -1e-3 * sum((a * b).sum() for a, b in zip(g, h, strict=True) if a is not None and b is not None)
        )
    expected = torch.stack(expected)
    assert (scores - expected).abs().max() < 0.1 * expected.abs().max()


def test_heads_that_the_stream_does_not_reach_stay_in_the_virtual_step() -> None:
    """Soft labels of the coarse level say nothing about finer ones."""
    learner = MIR(setup(buffer=40), MirSettings(loss="soft_ce", virtual_lr=0.05))
    curator = feed(learner, stream(8))
    x, labels = stream(1, seed=7, levels=(0,))[0]
    batch, items = Batch(x, curator.observe(labels)), learner.memory.read(torch.arange(12).numpy())
    ahead = copy.deepcopy(learner)
    moved = [p for name, p in ahead.net.optimizer._named.items() if not name.startswith("linear.1.")]
    gradients = torch.autograd.grad(ahead.loss([batch], curator.taxonomy), moved)
    for p, gradient in zip(moved, gradients, strict=True):
        p.data -= 0.05 * gradient
    candidates = items["x"], items["y"].tolist()
    before, after = (torch.tensor(nll(net, *candidates, curator.taxonomy)) for net in (learner.net, ahead.net))
    scores = learner.interference(batch, Batch(items["x"], items["y"]), curator.taxonomy)
    torch.testing.assert_close(scores, after - before, rtol=1e-3, atol=1e-5)
    assert scores.abs().max() > 0.01


def test_the_most_interfered_are_replayed() -> None:
    learner, batch, _, taxonomy = learned(virtual_lr=1e-2)
    state = learner.rng.state_dict()
    (chosen,) = learner.replay(batch, taxonomy)
    learner.rng.load_state_dict(state)
    items = learner.memory.sample(20)
    candidates = Batch(items["x"], items["y"])
    scores = learner.interference(batch, candidates, taxonomy)
    top = sorted(range(20), key=lambda i: -scores[i].item())[:4]
    assert torch.equal(chosen.x, candidates.x[top])


def test_as_many_candidates_as_replayed_is_plain_replay() -> None:
    learner = MIR(setup(buffer=40, replay_batch=4), MirSettings(candidates=4))
    curator = feed(learner, stream(8))
    x, labels = stream(1, seed=7)[0]
    batch = Batch(x, curator.observe(labels))
    state = learner.rng.state_dict()
    (chosen,) = learner.replay(batch, curator.taxonomy)
    learner.rng.load_state_dict(state)
    assert torch.equal(chosen.y, learner.memory.sample(4)["y"])


def test_a_step_replays_what_a_plain_step_on_the_stream_would_raise_most() -> None:
    learner = MIR(setup(buffer=30, replay_batch=4), MirSettings(candidates=12, virtual_lr=0.05))
    rng, held, chosen_by_rank = draws(), list[Item](), 0
    history = learn(learner, stream(10), late_links())
    for seen, (batch, tree, (step,), stats) in zip(range(0, 80, 8), history, strict=True):
        y = batch.y.tolist()
        slots = rng.choice(len(held), min(12, len(held)), replace=False, shuffle=False).tolist() if held else []
        if len(slots) > 4:
            virtual = copy.deepcopy(step.before)
            ahead = haf(virtual, augment(batch.x, rng, flip=True), y, tree)
            parameters = virtual.optimizer.parameters()
            for p, g in zip(parameters, torch.autograd.grad(ahead, parameters, allow_unused=True), strict=True):
                p.data -= 0 if g is None else 0.05 * g
            candidates = stored(held, slots)
            rise = torch.tensor(nll(virtual, *candidates, tree)) - torch.tensor(nll(step.before, *candidates, tree))
            ranked = sorted(range(len(slots)), key=lambda i: -rise[i].item())
            slots = [slots[i] for i in ranked[:4]]
            chosen_by_rank += 1
        loss = haf(step.before, augment(batch.x, rng, flip=True), y, tree)
        if slots:
            x, given = stored(held, slots)
            loss = loss + haf(step.before, augment(x, rng, flip=True), given, tree)
        assert_step(step, loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
        reservoir(held, arriving(batch, seen), 30, rng)
    assert chosen_by_rank == 9
    assert_holds(learner, held)
