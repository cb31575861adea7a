from __future__ import annotations

import torch
import torch.nn.functional as F

from dhocl.checks import feed, setup, stream
from dhocl.learner import Batch
from dhocl.methods.mir import MIR, MirSettings


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
