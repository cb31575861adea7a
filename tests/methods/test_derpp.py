from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from dhocl.checks import setup, stream
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.methods.derpp import DERpp, DerppSettings, logit_error
from dhocl.nn.augment import augment
from dhocl.nn.network import Network
from tests.helpers.reference_replay import (
    Item,
    arriving,
    assert_holds,
    assert_step,
    draws,
    haf,
    late_links,
    learn,
    logits,
    reservoir,
    stored,
)


class Dark(NamedTuple):
    """The logits of one image: node -> number."""

    z: dict[int, Tensor]


def dark(net: Network, x: Tensor, tree: Taxonomy) -> list[Dark]:
    z = logits(net, x)
    return [
        Dark({node: z[level][row, c] for level in tree.levels for c, node in enumerate(tree.nodes(level).tolist())})
        for row in range(len(x))
    ]


def squared_error(net: Network, x: Tensor, then: list[Dark], tree: Taxonomy) -> Tensor:
    """Mean over all logits that were stored with these images."""
    pairs = [
        (now.z[node], old) for now, item in zip(dark(net, x, tree), then, strict=True) for node, old in item.z.items()
    ]
    return sum((now - old.detach()) ** 2 for now, old in pairs) / len(pairs)


def drawn(rng: Rng, held: list[Item]) -> list[int]:
    return list(rng.choice(len(held), min(4, len(held)), replace=False, shuffle=False)) if held else []


@pytest.mark.parametrize(
    ("settings", "alpha", "beta"), [(DerppSettings(), 0.5, 1.0), (DerppSettings(alpha=0.7, beta=1.3), 0.7, 1.3)]
)
def test_a_step_is_the_stream_the_stored_logits_and_the_labels_of_another_replay_batch(
    settings: DerppSettings, alpha: float, beta: float
) -> None:
    learner, curator = DERpp(setup(buffer=20, replay_batch=4), settings), late_links()
    history = learn(learner, stream(10), curator)
    tree = curator.taxonomy
    tree.add(Label("plant", 0))  # the last node, and no stored image has a logit of it
    tree.merge(tree.id(Label("crow", 1)), tree.id(Label("robin", 1)))
    history += learn(learner, stream(2, seed=1), curator)
    rng, held, came, narrower = draws(), list[Item](), list[Dark](), 0
    for seen, (batch, tree, (step,), stats) in zip(range(0, 96, 8), history, strict=True):
        held = [item._replace(y=tree.accepted(item.y)) for item in held]
        first, second = drawn(rng, held), drawn(rng, held)
        own = augment(batch.x, rng, flip=True)
        loss = haf(step.before, own, batch.y.tolist(), tree)
        if held:
            x, y = stored(held, second)
            loss = loss + beta * haf(step.before, augment(x, rng, flip=True), y, tree)
            x, _ = stored(held, first)
            then = [came[held[slot].arrived] for slot in first]
            loss = loss + alpha * squared_error(step.before, augment(x, rng, flip=True), then, tree)
            narrower += sum(len(item.z) < len(tree) for item in then)
        assert_step(step, loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
        reservoir(held, arriving(batch, seen), 20, rng)
        came += dark(step.before, own, tree)
    assert narrower > 10, "logits of fewer classes were replayed"
    assert_holds(learner, held)
    for row, item in zip(learner.memory.columns["logits"], held, strict=True):
        assert {node for node, z in enumerate(row.tolist()) if z == z} == came[item.arrived].z.keys()
        for node, z in came[item.arrived].z.items():
            torch.testing.assert_close(row[node], z.detach(), rtol=1e-4, atol=1e-5)


def test_with_two_copies_of_an_image_the_logits_of_the_first_are_stored() -> None:
    learner, curator = DERpp(setup(), DerppSettings(loss="hcon")), late_links()
    (batch, tree, (step,), _), *_ = learn(learner, stream(1), curator)
    expected = dark(step.before, augment(batch.x, draws(), flip=True), tree)
    for row, item in zip(learner.memory.columns["logits"], expected, strict=False):
        torch.testing.assert_close(row, torch.stack([item.z[node] for node in range(len(tree))]))


def test_classes_that_came_after_an_item_was_stored_get_no_gradient() -> None:
    now = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    loss = logit_error(now, torch.tensor([[0.0, torch.nan], [2.0, 2.0]]))
    loss.backward()
    assert loss.item() == pytest.approx((1 + 4 + 9) / 3)
    torch.testing.assert_close(now.grad, torch.tensor([[2.0, 0, 0], [4.0, 6.0, 0]]) / 3)
