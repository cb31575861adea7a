"""Steps of a learner, each beside a slow recomputation from the state before it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from dhocl.checks import true_tree
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.knowledge import Curator, Oracle
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch, Learner

L = TypeVar("L", bound=Learner)
Gradients = dict[str, Tensor | None]  # by parameter name, None where the loss does not reach


class Step(NamedTuple):
    """One call of `learn`."""

    twin: Learner  # the learner as it was before, heads grown to the taxonomy
    batch: Batch
    taxonomy: Taxonomy
    losses: list[Tensor]  # what `net.step` was called with
    reported: float
    gradients: Gradients


def steps(learner: L, batches: Sequence[tuple[Tensor, list[Label]]]) -> Iterator[Step]:
    """Feed the batches; the twin of each step draws the same random numbers as the learner did."""
    curator = Curator(Oracle(true_tree()))
    for x, labels in batches:
        batch = Batch(x, curator.observe(labels))
        twin = copy.deepcopy(learner)
        losses, step = [], learner.net.step
        learner.net.step = lambda loss, step=step, losses=losses: (losses.append(loss.detach()), step(loss))
        reported = learner.learn(batch, curator.taxonomy)["loss"]
        del learner.net.step
        twin.net.grow(curator.taxonomy)
        gradients = {name: p.grad for name, p in learner.net.optimizer._named.items()}
        yield Step(twin, batch, curator.taxonomy, losses, reported, gradients)


def views(step: Step) -> list[tuple[Tensor, Tensor]]:
    """Augmented pixels and labels of the stream batch, and of the replay batch if there is one."""
    twin = step.twin
    items = twin.memory.sample(twin.setup.replay_batch)
    batches = [step.batch, *([Batch(items["x"], items["y"])] if items else [])]
    return [(augment(each.x, twin.rng, twin.setup.flip), each.y) for each in batches]


def columns(y: Tensor, level: int, taxonomy: Taxonomy) -> dict[int, int]:
    """Row -> class, of the rows whose label or a known ancestor of it is of the level."""
    above = {row: taxonomy.lineage(node) for row, node in enumerate(y.tolist())}
    own = {row: [node for node in nodes if taxonomy.labels[node].level == level] for row, nodes in above.items()}
    return {row: taxonomy.column(nodes[0]) for row, nodes in own.items() if nodes}


def haf(logits: dict[int, Tensor], y: Tensor, taxonomy: Taxonomy) -> Tensor:
    """Σ_h CE + ½ JS, row by row."""
    total = torch.zeros(())
    for level in taxonomy.levels:
        labelled = columns(y, level, taxonomy)
        for row, column in labelled.items():
            total = total - logits[level][row].softmax(0)[column].log() / len(labelled)
    for coarse, fine in pairwise(taxonomy.levels):
        families: dict[int, list[int]] = {}
        for child, parent in columns(taxonomy.nodes(fine), coarse, taxonomy).items():
            families.setdefault(parent, []).append(child)
        if len(families) > 1:
            for row in range(len(y)):
                p = logits[coarse][row, list(families)].softmax(0)
                below = logits[fine][row, [child for own in families.values() for child in own]].softmax(0)
                q = torch.stack([part.sum() for part in below.split([len(own) for own in families.values()])])
                m = (p + q) / 2
                js = sum((side * (side / m).log()).sum() for side in (p, q)) / 2
                total = total + 0.5 * js / len(y)
    return total


def gradients_by_hand(twin: Learner, loss: Tensor) -> Gradients:
    named = twin.net.optimizer._named
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True, retain_graph=True)
    return dict(zip(named, found, strict=True))


def assert_step(step: Step, loss: Tensor, tolerance: float = 1e-3) -> None:
    """It was one step, down this loss, with its gradients."""
    assert len(step.losses) == 1
    torch.testing.assert_close(step.losses[0], loss.detach(), rtol=1e-4, atol=1e-5)
    assert abs(step.reported - loss.item()) < 1e-4 * max(1, abs(loss.item()))
    by_hand = gradients_by_hand(step.twin, loss)
    assert list(by_hand) == list(step.gradients)
    for name, expected in by_hand.items():
        found = step.gradients[name]
        assert (found is None) == (expected is None), name
        if expected is not None:
            atol = tolerance * expected.abs().max().item() + 1e-6
            assert torch.allclose(found, expected, rtol=tolerance, atol=atol), name


def assert_remembered(step: Step, learner: Learner) -> None:
    """The batch was offered to the memory once, after the draws of this step, as it arrived."""
    twin = step.twin.memory
    twin.insert(x=step.batch.x, y=step.batch.y)
    assert (learner.memory.size, learner.memory.seen) == (twin.size, twin.seen)
    for name, column in twin.columns.items():
        assert torch.equal(learner.memory.columns[name][: twin.size], column[: twin.size])
