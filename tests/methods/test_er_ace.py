from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from dhocl.checks import setup, stream
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.methods.er import ReplaySettings
from dhocl.methods.er_ace import ERACE, present_only
from dhocl.nn.augment import augment
from dhocl.nn.losses import Average, multi_ce
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


def present_ce(net: Network, x: Tensor, y: Sequence[int], tree: Taxonomy, average: Average) -> tuple[Tensor, int]:
    """Σ_h mean of -log p of each row's class at h, p a softmax over the classes of h among the batch's labels and
    their known ancestors; and how many classes were left out."""
    z, total, left_out = logits(net, x), torch.zeros(()), 0
    for level in tree.levels:
        own = {
            row: tree.column(node)
            for row, given in enumerate(y)
            for node in tree.lineage(given)
            if tree.labels[node].level == level
        }
        present = sorted(set(own.values()))
        left_out += tree.widths[level] - len(present)
        terms = [-z[level][row][present].log_softmax(0)[present.index(column)] for row, column in own.items()]
        if terms:
            total = total + sum(terms) / (len(terms) if average == "level" else len(y))
    return total, left_out


@pytest.mark.parametrize("average", ["level", "sample"])
def test_a_step_is_present_classes_on_the_stream_and_the_loss_over_all_classes_on_the_replay(average: Average) -> None:
    learner, curator = ERACE(setup(buffer=20, replay_batch=4), ReplaySettings(average=average)), late_links()
    history = learn(learner, stream(10), curator)
    tree = curator.taxonomy
    tree.merge(tree.id(Label("crow", 1)), tree.id(Label("robin", 1)))
    history += learn(learner, [*stream(2, seed=1), *stream(1, seed=2, levels=(0,))], curator)
    rng, held, left_out = draws(), list[Item](), 0
    for seen, (batch, tree, (step,), stats) in zip(range(0, 104, 8), history, strict=True):
        held = [item._replace(y=tree.accepted(item.y)) for item in held]
        slots = rng.choice(len(held), min(4, len(held)), replace=False, shuffle=False) if held else []
        loss, missing = present_ce(step.before, augment(batch.x, rng, flip=True), batch.y.tolist(), tree, average)
        left_out += missing
        if len(slots):
            x, y = stored(held, slots)
            loss = loss + haf(step.before, augment(x, rng, flip=True), y, tree, average)
        assert_step(step, loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
        reservoir(held, arriving(batch, seen), 20, rng)
    assert left_out > 10
    assert_holds(learner, held)


def test_classes_of_other_batches_get_no_gradient_and_a_level_without_labels_is_finite() -> None:
    z = {level: torch.randn(3, width, requires_grad=True) for level, width in ((0, 4), (1, 5), (3, 2))}
    targets = torch.tensor([[0, -1, -1], [2, 1, -1], [2, -1, -1]])
    multi_ce(present_only(z, targets), targets).backward()
    present = {level: grad.abs().sum(0) > 0 for level, grad in ((level, z[level].grad) for level in z)}
    assert present[0].tolist() == [True, False, True, False]
    assert not present[1].any(), "one class alone competes with none"
    assert not present[3].any()
    assert all(torch.isfinite(one.grad).all() for one in z.values())
