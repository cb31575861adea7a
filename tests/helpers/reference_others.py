"""For reference steps: a twin of a learner that a test moves by hand, and the comparison of the two afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.checks import stream, true_tree
from dhocl.core.taxonomy import Taxonomy
from dhocl.knowledge import Curator, Oracle
from dhocl.nn.learner import Batch, Learner
from dhocl.nn.network import Network

L = TypeVar("L", bound=Learner)


class Step(NamedTuple):
    loss: float
    gradients: list[Tensor]


def watched(net: Network) -> list[Step]:
    """The loss and the gradients of every step that this network takes from now on."""
    steps: list[Step] = []
    step = net.step

    def take(loss: Tensor) -> None:
        trained = [p for p in net.optimizer.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss, trained, retain_graph=True, allow_unused=True, materialize_grads=True)
        steps.append(Step(loss.item(), list(gradients)))
        step(loss)

    net.step = take  # type: ignore[method-assign]
    return steps


def assert_same_steps(got: list[Step], wanted: list[Step]) -> None:
    assert len(got) == len(wanted), "number of optimizer steps"
    for mine, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine.loss, other.loss, rtol=1e-4, atol=1e-5)
        for a, b in zip(mine.gradients, other.gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def assert_same_state(got: Any, wanted: Any, where: str = "state") -> None:
    """Nested dicts, numbers and tensors; whole numbers and bytes exactly."""
    if isinstance(wanted, dict):
        assert got.keys() == wanted.keys(), where
        for key in wanted:
            assert_same_state(got[key], wanted[key], f"{where}.{key}")
    elif isinstance(wanted, Tensor):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5, msg=lambda text: f"{where}: {text}")
    elif isinstance(wanted, (float, list)):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5, msg=lambda text: f"{where}: {text}")
    else:
        assert got == wanted, where


def arriving(steps: int, b: int = 8) -> Iterator[tuple[Batch, Taxonomy]]:
    """A stream in which classes and links become known over time."""
    curator = Curator(Oracle(true_tree()))
    for x, labels in stream(steps, b=b):
        yield Batch(x, curator.observe(labels)), curator.taxonomy


def twins(make: Callable[[], L], learner: L) -> L:
    """A learner in the same state that shares nothing with it."""
    twin = make()
    twin.load_state_dict(copy.deepcopy(learner.state_dict()))
    return twin


def path(tree: Taxonomy, node: int) -> list[int]:
    """The column at each level of a node and its known ancestors, -1 where there is none."""
    known = {tree.labels[n].level: tree.column(n) for n in tree.lineage(node)}
    return [known.get(level, -1) for level in tree.levels]


def slow_multi_ce(logits: dict[int, Tensor], y: Tensor, tree: Taxonomy) -> Tensor:
    """Σ over levels of the mean cross-entropy of the rows that have a class there, row by row."""
    paths = [path(tree, node) for node in y.tolist()]
    total = torch.zeros(())
    for place, level in enumerate(tree.levels):
        rows = [i for i in range(len(y)) if paths[i][place] >= 0]
        for i in rows:
            total = total + F.cross_entropy(logits[level][i], torch.tensor(paths[i][place])) / len(rows)
    return total
