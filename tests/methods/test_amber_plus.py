"""AMBER on a network trained at first: equal to AMBER and replay put together by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from dhocl.checks import assert_same, exam, feed, passes, setup, stream, true_tree
from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.experiment.run import nbytes
from dhocl.knowledge import Curator, Oracle
from dhocl.methods.amber import Amber, AmberSettings
from dhocl.methods.amber_plus import AmberPlus, AmberPlusSettings
from dhocl.methods.er import ER, ReplaySettings
from dhocl.model.merging import merge
from dhocl.model.model import Model, ModelConfig
from dhocl.nn.learner import Batch, Needs
from dhocl.nn.memory import Everything
from tests.helpers.states import values

RATES = {"lr_backbone": 1e-2, "lr_heads": 2e-2, "weight_decay": 0.1}  # high, so that the network changes much
AMBER = AmberSettings(gamma=2.0)


class Replay(ER):
    def make_memory(self) -> Everything:
        return Everything(0, self.rng)


def learner(start: int = 20) -> AmberPlus:
    """The start ends with the third batch of eight."""
    return AmberPlus(setup(), AmberPlusSettings(start=start, gamma=2.0, **RATES))


def test_until_the_start_is_over_it_predicts_as_amber() -> None:
    plus, plain, x = learner(), Amber(setup(), AMBER), exam()[0]
    curators = Curator(Oracle(true_tree())), Curator(Oracle(true_tree()))
    for batch in stream(8)[:2]:
        feed(plus, [batch], curators[0])
        feed(plain, [batch], curators[1])
        assert_same(plus.predict(x), plain.predict(x), "the same network")
        assert_same(plus.foresee(x), plain.foresee(x), "the same network")


def test_afterwards_it_is_amber_on_a_network_that_replay_has_trained() -> None:
    """All images of the start are learned again, by the tree as it is then: a link comes late."""
    plus, curator = learner(), Curator(Oracle(true_tree()), delay=2)
    trained = setup()
    replay = Replay(trained, ReplaySettings(**RATES))
    batches = [Batch(x, curator.observe(labels)) for x, labels in stream(8)]
    tree = curator.taxonomy
    robin = tree.id(Label("robin", 1))
    tree.unlink(robin)
    for batch in batches[:3]:
        if batch is batches[2]:
            tree.link(robin, tree.id(Label("bird", 0)))
        plus.learn(batch, tree)
        replay.learn(batch, tree)
    assert plus.starter is None
    by_hand = Amber(trained, AMBER)
    before = Amber(setup(), AMBER).features(exam()[0])
    assert (by_hand.features(exam()[0]) - before).abs().max() > 0.01, "the network has changed"
    first = batches[:3]
    by_hand.learn(Batch(torch.cat([batch.x for batch in first]), torch.cat([batch.y for batch in first])), tree)
    assert values(plus.amber.state_dict()) == values(by_hand.state_dict())
    for batch in batches[3:]:
        plus.learn(batch, tree)
        by_hand.learn(batch, tree)
    assert_same(plus.predict(exam()[0]), by_hand.predict(exam()[0]), "the network is frozen")


def test_the_start_ends_with_the_batch_that_completes_it() -> None:
    plus = learner(start=16)
    curator = feed(plus, stream(8)[:1])
    assert plus.starter is not None
    feed(plus, stream(8)[1:2], curator)
    assert plus.starter is None


def test_a_sample_forgotten_at_the_start_is_not_learned_again() -> None:
    plus, batches = learner(), [Batch(x, torch.tensor([0, 1] * 4)) for x, _ in stream(8)]
    tree = true_tree()
    plus.learn(batches[0], tree)
    plus.learn(batches[1], tree)
    assert len(plus.held()) == 16
    plus.forget(Batch(batches[0].x[:3], batches[0].y[:3]), tree)
    assert len(plus.held()) == 13
    plus.learn(batches[2], tree)
    assert plus.starter is None
    assert plus.amber.window.seen == 24 - 3
    plus.forget(Batch(batches[1].x[:1], batches[1].y[:1]), tree)
    assert plus.amber.window.seen == 24 - 4
    with pytest.raises(InputError):
        plus.forget(Batch(batches[0].x[:1], batches[0].y[:1]), tree)


@pytest.mark.parametrize("steps", [2, 5])
def test_resumed_before_and_after_the_start_it_is_the_same(steps: int) -> None:
    whole, resumed, batches = learner(), learner(), stream(8)
    curator = feed(whole, batches[:steps])
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    other = Curator(Oracle(true_tree()))
    other.load_state_dict(curator.state_dict())
    feed(whole, batches[steps:], curator)
    feed(resumed, batches[steps:], other)
    assert values(resumed.state_dict()) == values(whole.state_dict())
    assert_same(resumed.predict(exam()[0]), whole.predict(exam()[0]), "resumed")


def test_a_sample_of_a_class_that_was_merged_is_forgotten_by_the_label_it_came_with() -> None:
    """The start ends between the merge and the deletion."""
    plus, tree, batches = learner(), true_tree(), stream(8)
    robin, crow = (tree.id(Label(name, 1)) for name in ("robin", "crow"))
    first = Batch(batches[0][0], torch.full((8,), crow))
    plus.learn(first, tree)
    tree.merge(crow, robin)
    for x, _ in batches[1:3]:
        plus.learn(Batch(x, torch.full((8,), robin)), tree)
    assert plus.starter is None
    plus.forget(Batch(first.x[:3], first.y[:3]), tree)
    assert plus.amber.window.seen == 24 - 3


def test_images_are_learned_again_in_batches_of_one_size() -> None:
    """A last batch of one sample must not mean a batch of one for each image of the start."""
    x, y, tree = torch.cat([x for x, _ in stream(8)])[:40], torch.tensor([0, 1, 3, 4] * 10), true_tree()
    plus = learner(start=40)
    sizes: list[int] = []
    learn = Amber.learn

    def counted(amber: Amber, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        sizes.append(len(batch.y))
        return learn(amber, batch, taxonomy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Amber, "learn", counted)
        for part in (slice(0, 39), slice(39, 40)):
            plus.learn(Batch(x[part], y[part]), tree)
    assert sizes == [39, 1, 32, 8]


def test_the_start_is_not_lost_if_learning_it_again_fails() -> None:
    plus, batches = learner(), stream(8)
    curator = feed(plus, batches[:2])
    learn = Amber.learn

    def failing(amber: Amber, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        if amber is not plus.amber:
            raise MemoryError
        return learn(amber, batch, taxonomy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Amber, "learn", failing)
        with pytest.raises(MemoryError):
            feed(plus, batches[2:3], curator)
    assert plus.starter is not None
    assert plus.starter.memory.size == 24


def test_costs_more_at_the_start_and_then_as_much_as_amber() -> None:
    """In passes of an image: AMBER looks twice at each. A step of replay counts three times, from the second on for 4
    images more. Then the 24 images of the start are looked at twice again."""
    plus, curator = learner(), Curator(Oracle(true_tree()))
    looks = [0]
    for batch in stream(8)[:4]:
        feed(plus, [batch], curator)
        looks.append(passes(plus.setup.backbone))
    assert np.diff(looks).tolist() == [16 + 3 * 8, 16 + 3 * 12, 16 + 3 * 12 + 2 * 24, 16]


def test_images_are_dropped_after_the_start() -> None:
    plus, batches = learner(), stream(8)
    curator = feed(plus, batches[:2])
    large = nbytes(plus.state_dict())
    feed(plus, batches[2:3], curator)
    assert "starter" not in plus.state_dict()
    assert nbytes(plus.state_dict()) < large


def test_a_reader_holds_no_images_and_lags_only_if_it_may() -> None:
    plus, x = learner(), exam()[0]
    curator = feed(plus, stream(8)[:1])
    assert plus.reader().starter is None
    before = plus.foresee(x)
    feed(plus, [(stream(8)[1][0][:2], stream(8)[1][1][:2])], curator)
    assert_same(plus.reader(lagging=True).predict(x), before, "it may lack the last samples")
    assert_same(plus.reader().predict(x), plus.predict(x), "it knows all samples")
    assert any((plus.predict(x)[level] != before[level]).any() for level in before)


def test_a_model_decodes_it_as_amber() -> None:
    """What `predict` returns is one distribution over paths already."""
    models = [
        Model(ModelConfig(("group", "kind"), name, backbone="tiny", image_size=32), tree=true_tree())
        for name in ("amber", "amber_plus")
    ]
    for model in models:
        for x, labels in stream(4):
            model.observe(x, labels)
    expected, found = (model.beliefs(exam()[0]).levels for model in models)
    assert_same(found, expected, "the same beliefs")


def test_what_it_needs_in_memory() -> None:
    assert learner(start=20).needs(8, 1000) == Needs(stored=20, trained=8 + 4)
    assert learner(start=2000).needs(8, 3).stored == 3


def test_two_of_them_are_not_merged() -> None:
    one, other = (Model(ModelConfig(("group", "kind"), "amber_plus", backbone="tiny", image_size=32)) for _ in range(2))
    for model in (one, other):
        model.observe(exam()[0][:2], [Label("bird", 0), Label("robin", 1)])
    with pytest.raises(InputError, match="use amber"):
        merge(one, other)
