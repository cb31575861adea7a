"""Each named loss as it reaches the network, against a slow recomputation from raw logits."""

from __future__ import annotations

import copy
import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from dhocl.checks import feed, setup, stream
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.augment import augment_each
from dhocl.nn.learner import Batch
from dhocl.nn.losses import Average
from dhocl.nn.network import Network, Output
from dhocl.nn.objectives import Contrastive, LossName, Objective, make_objective
from tests.helpers import slow_losses as slow
from tests.helpers.tensors import precise

NAMES = get_args(LossName)
AVERAGES = get_args(Average)


def partial_tree() -> Taxonomy:
    """Levels 0, 2 and 4. Two whole branches, one of them skipping level 2; a coarse class without a child; unanchored
    classes; a merged class."""
    tree = Taxonomy()
    names = ["animal 0", "plant 0", "stone 0", "bird 2", "fish 2", "robin 4", "crow 4", "cod 4", "oak 4", "moss 4"]
    ids = {name.split()[0]: tree.add(Label(name.split()[0], int(name.split()[1]))) for name in names}
    for child, parent in [
        ("bird", "animal"),
        ("fish", "animal"),
        ("robin", "bird"),
        ("crow", "bird"),
        ("cod", "fish"),
        ("oak", "plant"),
    ]:
        tree.link(ids[child], ids[parent])
    tree.merge(tree.add(Label("ruddock", 4)), ids["robin"])
    return tree


TREE = partial_tree()
LABELLED = [TREE.id(label) for label in (Label("robin", 4), Label("moss", 4), Label("fish", 2), Label("stone", 0))] + [
    TREE.id(Label("animal", 0)),
    TREE.id(Label("crow", 4)),
    TREE.id(Label("oak", 4)),
]


def by_hand(
    name: str, logits: dict[int, Tensor], y: list[int], tree: Taxonomy, average: str, objective: Objective, f: Tensor
) -> Tensor:
    if name != "hcon":
        return getattr(slow, name)(logits, y, tree, average)
    assert isinstance(objective, Contrastive)
    first, _, second = objective.projection
    hidden = (f @ first.weight.t() + first.bias).clamp_min(0) @ second.weight.t() + second.bias
    unit = hidden / hidden.square().sum(1, keepdim=True).sqrt()
    return slow.multi_ce(logits, y * 2, tree, average) + 0.1 * slow.hcon(unit, y, tree)


def gradients(loss: Tensor, parameters: list[Tensor]) -> tuple[Tensor, ...]:
    """0 where a parameter has no part in the loss, such as HXE's score of a class with children."""
    return torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("name", NAMES)
def test_an_objective_is_its_definition(name: LossName, average: Average) -> None:
    net = Network(setup(), ReplaySettings())
    objective = make_objective(name, net, 1e-3, 0, average)
    assert objective.copies == (2 if name == "hcon" else 1)
    n = objective.copies * len(LABELLED)
    logits = {level: precise(n, width, seed=level).float().requires_grad_() for level, width in TREE.widths.items()}
    features = precise(n, net.f.dim, seed=9).float()
    y = torch.tensor(LABELLED * objective.copies)
    loss = objective(Output(logits, features, features), TREE.complete(y), TREE)
    expected = by_hand(name, logits, LABELLED, TREE, average, objective, features)
    torch.testing.assert_close(loss, expected)
    ours, theirs = (gradients(value, list(logits.values())) for value in (loss, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_step_of_replay_is_taken_on_the_named_loss(name: LossName, average: Average) -> None:
    """Stream and replay batch, each with a loss of its own; the gradient of their sum in every parameter."""
    learner = ER(setup(), ReplaySettings(loss=name, average=average))
    *before, (x, labels) = stream(6)
    curator = feed(learner, before)
    batch, tree = Batch(x, curator.observe(labels)), curator.taxonomy
    twin, losses = copy.deepcopy(learner), []
    learner.net.step = losses.append  # type: ignore[method-assign]
    reported = learner.learn(batch, tree)

    twin.net.grow(tree)
    items = twin.memory.sample(4)
    assert len(items["y"]) == 4
    expected = torch.zeros(())
    views = 2 if name == "hcon" else 1
    parts = [(batch.x, batch.y.tolist()), (items["x"], items["y"].tolist())]
    augmented = augment_each([pixels for pixels, _ in parts for _ in range(views)], twin.rng, flip=True)
    for (pixels, y), images in zip(parts, augmented.split([views * len(y) for _, y in parts]), strict=True):
        assert len(images) == views * len(pixels)
        features, _ = twin.net.f(images)
        logits = {level: features @ head.weight.t() + head.bias for level, head in twin.net.heads.levels.items()}
        expected = expected + by_hand(name, logits, y, tree, average, twin.objective, features)
    (loss,) = losses
    torch.testing.assert_close(loss, expected)
    assert math.isclose(reported["loss"], expected.item(), rel_tol=1e-4)
    ours, theirs = (
        gradients(value, who.net.optimizer.parameters()) for value, who in ((loss, learner), (expected, twin))
    )
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-3, atol=1e-5)


def test_the_projection_of_hcon_is_trained_at_the_rate_of_the_heads() -> None:
    net = Network(setup(), ReplaySettings())
    objective = make_objective("hcon", net, 0.25, 0)
    assert isinstance(objective, Contrastive)
    shapes = [tuple(p.shape) for p in objective.projection.parameters()]
    assert shapes == [(64, 64), (64,), (128, 64), (128,)]
    trained = {id(p): group["lr"] for group in net.optimizer._fixed.param_groups for p in group["params"]}
    assert [trained[id(p)] for p in objective.projection.parameters()] == [0.25] * 4


@pytest.mark.parametrize("name", NAMES)
def test_predictions_of_an_objective(name: LossName) -> None:
    """HXE's are sums up the tree of the last step, also in a copy that was restored; the others' are each head's."""
    net = Network(setup(), ReplaySettings())
    objective, restored = (make_objective(name, net_, 1e-3, 0) for net_ in (net, Network(setup(), ReplaySettings())))
    tree = TREE.copy()
    logits = {level: precise(3, width, seed=level) for level, width in tree.widths.items()}
    expected = {level: z.exp() / z.exp().sum(1, keepdim=True) for level, z in logits.items()}
    if name == "hxe":
        expected = slow.leaf_softmax(logits, tree)
        objective.follow(tree)
        tree.unlink(tree.id(Label("robin", 4)))  # of which the objective knows nothing yet
    restored.load_state_dict(objective.state_dict())
    for answers in (objective.probabilities(logits), restored.probabilities(logits)):
        torch.testing.assert_close(answers, expected)
