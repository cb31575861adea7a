"""Reference steps: what a method trained on, recorded, and its loss recomputed slowly, row by row.

A learner's random draws are replayed from `Rng(seed, "learner")`, in the order in which the method's paper needs them.
So a reference also fixes which items are drawn, and when they are stored.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.checks import true_tree
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.knowledge import Curator, Oracle
from dhocl.methods.er import ER
from dhocl.nn.learner import Batch
from dhocl.nn.losses import Average
from dhocl.nn.network import Network


class Step(NamedTuple):
    """One call of `net.step`."""

    before: Network
    after: Network
    loss: float
    gradients: list[Tensor | None]  # by parameter


class Learned(NamedTuple):
    """One call of `learn`."""

    batch: Batch
    tree: Taxonomy  # as it was then
    steps: list[Step]
    stats: dict[str, float]


def late_links() -> Curator:
    """Links come three batches after their class: items are stored unlinked, and replayed linked."""
    return Curator(Oracle(true_tree()), delay=3)


def learn(learner: ER, batches: Sequence[tuple[Tensor, list[Label]]], curator: Curator) -> list[Learned]:
    """Feed the batches, and check that nothing but `net.step` changes the network."""
    history = []
    network, step = learner.net, learner.net.step
    last = _values(network)

    def recorded(loss: Tensor) -> None:
        nonlocal last
        assert all(torch.equal(p[: len(old)], old) for p, old in zip(_values(network), last, strict=False))
        before = copy.deepcopy(network)
        step(loss)
        last = _values(network)
        gradients = [None if p.grad is None else p.grad.clone() for p in network.optimizer.parameters()]
        steps.append(Step(before, copy.deepcopy(network), loss.item(), gradients))

    network.step = recorded  # type: ignore[method-assign]
    for x, labels in batches:
        steps: list[Step] = []
        batch = Batch(x, curator.observe(labels))
        stats = learner.learn(batch, curator.taxonomy)
        assert all(torch.equal(p, old) for p, old in zip(_values(network), last, strict=True))
        history.append(Learned(batch, curator.taxonomy.copy(), steps, stats))
    network.step = step  # type: ignore[method-assign]
    return history


def _values(net: Network) -> list[Tensor]:
    return [p.detach().clone() for p in net.optimizer.parameters()]


def assert_step(step: Step, loss: Tensor) -> None:
    """The recorded step was one on this loss, which was made of `step.before`."""
    assert abs(step.loss - loss.item()) < 1e-5 * max(1, abs(step.loss))
    expected = torch.autograd.grad(loss, step.before.optimizer.parameters(), allow_unused=True)
    for found, wanted in zip(step.gradients, expected, strict=True):
        if wanted is None:
            assert found is None
        else:
            assert found is not None
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


def logits(net: Network, x: Tensor) -> dict[int, Tensor]:
    """(B, classes) per level."""
    features = net.f(x)[0]
    return {level: features @ head.weight.t() + head.bias for level, head in net.heads.levels.items()}


def haf(net: Network, x: Tensor, y: Sequence[int], tree: Taxonomy, average: Average = "level") -> Tensor:
    """Σ_h mean CE over the rows with a class at h, + ½ Σ_h JS between a level and the sum of the next finer one."""
    z = logits(net, x)
    total = torch.zeros(())
    for level in tree.levels:
        terms = [
            -z[level][row].log_softmax(0)[tree.column(node)]
            for row, given in enumerate(y)
            for node in tree.lineage(given)
            if tree.labels[node].level == level
        ]
        if terms:
            total = total + sum(terms) / (len(terms) if average == "level" else len(y))
    for coarse, fine in pairwise(tree.levels):
        family = _family(tree, coarse, fine)
        parents = sorted(set(family.values()))
        if len(parents) < 2:
            continue
        for row in range(len(y)):
            p = z[coarse][row][parents].softmax(0)
            below = z[fine][row][list(family)].softmax(0)
            q = torch.stack([below[[own == parent for own in family.values()]].sum() for parent in parents])
            m = (p + q) / 2
            js = (p * (p / m).log()).sum() / 2 + (q * (q / m).log()).sum() / 2
            total = total + 0.5 * js / len(y)
    return total


def _family(tree: Taxonomy, coarse: int, fine: int) -> dict[int, int]:
    """Column of each linked class of the finer level -> that of its ancestor."""
    return {
        column: tree.column(above)
        for column, node in enumerate(tree.nodes(fine).tolist())
        for above in tree.lineage(node)
        if tree.labels[above].level == coarse
    }


def nll(net: Network, x: Tensor, y: Sequence[int], tree: Taxonomy) -> list[float]:
    """Cross-entropy of each row at the level it was labelled at."""
    with torch.no_grad():
        z = logits(net, x)
    return [
        F.cross_entropy(z[tree.labels[node].level][[row]], torch.tensor([tree.column(node)])).item()
        for row, node in enumerate(y)
    ]


class Item(NamedTuple):
    x: Tensor  # (3, H, W)
    y: int
    arrived: int


def stored(items: Sequence[Item], slots: Sequence[int]) -> tuple[Tensor, list[int]]:
    return torch.stack([items[slot].x for slot in slots]), [items[slot].y for slot in slots]


def arriving(batch: Batch, seen: int) -> list[Item]:
    return [Item(x, y, seen + row) for row, (x, y) in enumerate(zip(batch.x, batch.y.tolist(), strict=True))]


def reservoir(held: list[Item], items: Sequence[Item], capacity: int, rng: Rng) -> None:
    """Algorithm R, one item after the other."""
    for item, u in zip(items, rng.random(len(items)), strict=True):
        if len(held) < capacity:
            held.append(item)
        elif (slot := int(u * (item.arrived + 1))) < capacity:
            held[slot] = item


def assert_holds(learner: ER, items: Sequence[Item]) -> None:
    """The memory holds these items, slot by slot."""
    memory = learner.memory
    assert memory.size == len(items)
    assert memory.columns["arrived"][: memory.size].tolist() == [item.arrived for item in items]
    assert memory.columns["y"][: memory.size].tolist() == [item.y for item in items]
    assert torch.equal(memory.columns["x"][: memory.size], torch.stack([item.x for item in items]))


def draws(seed: int = 0) -> Rng:
    """What a learner of this seed draws from."""
    return Rng(seed, "learner")
