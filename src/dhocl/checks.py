"""Conformance checks that every method passes. Run them on a method of your own:

>>> from dhocl.checks import check_learner
>>> from dhocl.methods.acil import ACIL, AnalyticSettings
>>> check_learner(lambda setup: ACIL(setup, AnalyticSettings()))
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dhocl.core import checkpoint
from dhocl.core.decode import merge_synonyms
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.knowledge import Curator, Oracle
from dhocl.nn import backbones
from dhocl.nn.learner import Batch, Learner, Setup

Factory = Callable[[Setup], Learner]

SIZE = 32


def check_learner(make: Factory) -> None:
    """Run all checks of `CHECKS`. The first that fails raises AssertionError.

    Args:
        make: returns a new learner for a `Setup`, such as `lambda setup: MyMethod(setup, MySettings())`.
    """
    for check in CHECKS:
        check(make)


# -- test data: two species of birds and two of fish, each with a colour ---------------------------------------


def true_tree() -> Taxonomy:
    tree = Taxonomy()
    for parent, children in {"bird": ("robin", "crow"), "fish": ("cod", "carp")}.items():
        above = tree.add(Label(parent, 0))
        for child in children:
            tree.link(tree.add(Label(child, 1)), above)
    return tree


LEAVES = ("robin", "crow", "cod", "carp")
COLOURS = torch.tensor([[220, 30, 30], [220, 30, 220], [30, 220, 30], [30, 220, 220]])


def pictures(leaves: Sequence[int], rng: np.random.Generator) -> Tensor:
    """(n, 3, SIZE, SIZE) uint8: the colour of each leaf, with noise."""
    noise = torch.from_numpy(rng.integers(-30, 31, (len(leaves), 3, SIZE, SIZE)))
    return (COLOURS[list(leaves)][:, :, None, None] + noise).clamp(0, 255).to(torch.uint8)


def stream(steps: int, seed: int = 0, b: int = 8, levels: Sequence[int] = (0, 1)) -> list[tuple[Tensor, list[Label]]]:
    """Batches of images and labels, birds before fish."""
    rng = np.random.default_rng(seed)
    tree, batches = true_tree(), []
    for step in range(steps):
        home = 0 if step < steps // 2 else 2
        leaves = (home + rng.integers(0, 2, b)).tolist()
        labels = []
        for leaf, level in zip(leaves, rng.choice(levels, b), strict=True):
            node = tree.id(Label(LEAVES[leaf], 1))
            labels.append(tree.labels[node if level == 1 else tree.parent(node)])
        batches.append((pictures(leaves, rng), labels))
    return batches


def setup(buffer: int = 20, replay_batch: int = 4, seed: int = 0) -> Setup:
    return Setup(backbones.load("tiny"), buffer, replay_batch, flip=True, seed=seed)


def passes(backbone: backbones.Backbone) -> int:
    """Images forwarded so far; one with a backward pass counts as three."""
    return backbone.meter.pixels // SIZE**2


def feed(learner: Learner, batches: Sequence[tuple[Tensor, list[Label]]], curator: Curator | None = None) -> Curator:
    curator = curator or Curator(Oracle(true_tree()))
    for x, labels in batches:
        learner.learn(Batch(x, curator.observe(labels)), curator.taxonomy)
    return curator


def exam() -> tuple[Tensor, Tensor]:
    """Test images (40, 3, SIZE, SIZE) and their leaves (40,)."""
    leaves = torch.arange(4).repeat_interleave(10)
    return pictures(leaves.tolist(), np.random.default_rng(99)), leaves


def assert_valid(probabilities: dict[int, Tensor], taxonomy: Taxonomy, n: int) -> None:
    assert list(probabilities) == taxonomy.levels, "one prediction per known level, coarsest first"
    for level, on_device in probabilities.items():
        p = on_device.cpu()
        assert p.shape == (n, taxonomy.widths[level]), (
            f"level {level}: {tuple(p.shape)} for {taxonomy.widths[level]} classes"
        )
        assert torch.isfinite(p).all(), f"level {level}: predictions must be finite"
        assert (p >= 0).all(), f"level {level}: probabilities are not negative"
        assert torch.allclose(p.sum(1), torch.ones(n), atol=1e-4), f"level {level}: probabilities sum to 1"


def assert_same(a: dict[int, Tensor], b: dict[int, Tensor], why: str) -> None:
    assert list(a) == list(b), why
    assert all(torch.equal(a[level], b[level]) for level in a), why


# -- the checks ------------------------------------------------------------------------------------------------


def predicts_after_its_first_batch_and_as_wide_as_the_taxonomy(make: Factory) -> None:
    learner, curator = make(setup()), Curator(Oracle(true_tree()))
    x, _ = exam()
    for batch in stream(6):
        feed(learner, [batch], curator)
        assert_valid(learner.predict(x), curator.taxonomy, len(x))


def copes_with_a_level_between_known_ones(make: Factory) -> None:
    learner, tree = make(setup()), Taxonomy()
    rng = np.random.default_rng(0)
    for name, level in [("animal", 0), ("robin", 4), ("bird", 2), ("thrush", 3), ("crow", 4)]:
        node = tree.add(Label(name, level))
        learner.learn(Batch(pictures([0, 1, 2], rng), torch.full((3,), node)), tree)
        assert_valid(learner.predict(pictures([0, 1], rng)), tree, 2)
    for child, parent in [("robin", "thrush"), ("thrush", "bird"), ("bird", "animal")]:
        levels = {label.name: label for label in tree}
        tree.link(tree.id(levels[child]), tree.id(levels[parent]))
        learner.learn(Batch(pictures([0], rng), torch.tensor([tree.id(levels["robin"])])), tree)
    assert_valid(learner.predict(pictures([0, 1], rng)), tree, 2)


def copes_without_any_link(make: Factory) -> None:
    learner = make(setup())
    curator = feed(learner, stream(6), Curator(Oracle(true_tree()), math.inf))
    x, _ = exam()
    assert_valid(learner.predict(x), curator.taxonomy, len(x))


def copes_with_classes_that_have_no_image_yet(make: Factory) -> None:
    learner, curator = make(setup()), Curator(Oracle(true_tree()))
    feed(learner, stream(2), curator)
    curator.taxonomy.add(Label("whale", 1))
    feed(learner, stream(1), curator)
    x, _ = exam()
    assert_valid(learner.predict(x), curator.taxonomy, len(x))


def copes_with_links_that_move(make: Factory) -> None:
    learner, curator = make(setup()), Curator(Oracle(true_tree()))
    feed(learner, stream(4), curator)
    tree = curator.taxonomy
    robin = tree.id(Label("robin", 1))
    tree.unlink(robin)
    feed(learner, stream(1), curator)
    tree.link(robin, tree.id(Label("bird", 0)))
    feed(learner, stream(1), curator)
    x, _ = exam()
    assert_valid(learner.predict(x), tree, len(x))


def copes_with_renamed_and_merged_classes(make: Factory) -> None:
    learner, curator = make(setup()), Curator(Oracle(true_tree()))
    feed(learner, stream(6), curator)
    tree = curator.taxonomy
    tree.rename(tree.id(Label("bird", 0)), Label("Aves", 0))
    x, _ = exam()
    for synonym, accepted in (("crow", "robin"), ("carp", "cod")):
        tree.merge(tree.id(Label(synonym, 1)), tree.id(Label(accepted, 1)))
        assert_valid(merge_synonyms({level: p.cpu() for level, p in learner.predict(x).items()}, tree), tree, len(x))
        feed(learner, stream(4, seed=1), curator)  # with labels by the old names
        assert_valid(learner.predict(x), tree, len(x))
        held = learner.held()
        assert torch.equal(held, tree.resolve(held)), "`held` must return accepted classes"


def copes_with_batches_of_one_level(make: Factory) -> None:
    for level in (0, 1):
        learner = make(setup())
        curator = feed(learner, stream(4, levels=(level,)))
        x, _ = exam()
        assert_valid(learner.predict(x), curator.taxonomy, len(x))


def copes_with_a_batch_of_one(make: Factory) -> None:
    learner = make(setup())
    curator = feed(learner, stream(6, b=1))
    x, _ = exam()
    assert_valid(learner.predict(x[:1]), curator.taxonomy, 1)


def copes_with_a_buffer_smaller_than_the_replay_batch(make: Factory) -> None:
    for buffer in (0, 1, 3):
        learner = make(setup(buffer=buffer, replay_batch=4))
        curator = feed(learner, stream(4))
        x, _ = exam()
        assert_valid(learner.predict(x), curator.taxonomy, len(x))


def predict_is_pure(make: Factory) -> None:
    x, _ = exam()
    watched, left_alone = make(setup()), make(setup())
    batches = stream(6)
    curators = Curator(Oracle(true_tree())), Curator(Oracle(true_tree()))
    for batch in batches:
        feed(watched, [batch], curators[0])
        assert_same(watched.predict(x), watched.predict(x.clone()), "the same images must get the same prediction")
        feed(left_alone, [batch], curators[1])
    assert_same(watched.predict(x), left_alone.predict(x), "`predict` must not change the learner")


def predict_does_not_depend_on_the_other_images(make: Factory) -> None:
    learner = make(setup())
    feed(learner, stream(6))
    x, _ = exam()
    whole, part = learner.predict(x), learner.predict(x[:7].clone())
    for level in whole:
        assert torch.allclose(whole[level][:7], part[level], atol=1e-5), (
            "a prediction must not depend on the other images"
        )


def same_seed_same_learner(make: Factory) -> None:
    x, _ = exam()
    learners = [make(setup(seed=3)) for _ in range(2)]
    for learner in learners:
        torch.rand(7)  # detects a method that uses the global generator
        feed(learner, stream(8))
    assert_same(learners[0].predict(x), learners[1].predict(x), "the same seed must give the same predictions")


def resumed_equals_uninterrupted(make: Factory) -> None:
    x, _ = exam()
    batches = stream(10)
    whole, first, second = make(setup()), make(setup()), make(setup())
    feed(whole, batches)
    curator = feed(first, batches[:5])
    again = Curator(Oracle(true_tree()))
    again.load_state_dict(curator.state_dict())
    with tempfile.TemporaryDirectory() as folder:
        second.load_state_dict(checkpoint.load(checkpoint.save(Path(folder), first.state_dict())))
    feed(second, batches[5:], again)
    assert_same(whole.predict(x), second.predict(x), "a resumed learner differs: `components` is incomplete")


def a_reader_stays_as_it_is(make: Factory) -> None:
    x, _ = exam()
    batches = stream(10)
    watched, left_alone = make(setup()), make(setup())
    curators = feed(watched, batches[:5]), feed(left_alone, batches[:5])
    reader, before = watched.reader(), watched.predict(x)
    kept = reader.predict(x)
    close = all(torch.allclose(kept[level], p, atol=1e-4) for level, p in before.items())  # its networks are folded
    assert close, "a reader must predict like its learner"
    feed(watched, batches[5:], curators[0])
    assert_same(reader.predict(x.clone()), kept, "learning must not change a reader")
    feed(left_alone, batches[5:], curators[1])
    assert_same(watched.predict(x), left_alone.predict(x), "a reader must not change its learner")


def leaves_batch_and_taxonomy_alone(make: Factory) -> None:
    learner, curator = make(setup()), Curator(Oracle(true_tree()))
    for x, labels in stream(5):
        batch = Batch(x, curator.observe(labels))
        kept, before = Batch(batch.x.clone(), batch.y.clone()), _everything(curator.taxonomy)
        learner.learn(batch, curator.taxonomy)
        assert torch.equal(batch.x, kept.x), "images must not be written to"
        assert torch.equal(batch.y, kept.y), "labels must not be written to"
        assert _everything(curator.taxonomy) == before, "the taxonomy must not be changed"


def _everything(tree: Taxonomy) -> tuple[str, list[list[int]], list[list[int]]]:
    return tree.dumps(), tree.paths.tolist(), [tree.nodes(level).tolist() for level in tree.levels]


def new_classes_do_train(make: Factory) -> None:
    learner, rng = make(setup(buffer=40, replay_batch=8)), np.random.default_rng(5)
    early = [(pictures(leaves, rng), [Label(LEAVES[leaf], 1) for leaf in leaves]) for leaves in [[0, 1, 2] * 3] * 6]
    late = [(pictures([3] * 8, rng), [Label("carp", 1)] * 8) for _ in range(10)]
    test = pictures([3] * 8, rng)
    curator = feed(learner, [*early, late[0]])
    column = curator.taxonomy.column(curator.taxonomy.id(Label("carp", 1)))
    first = learner.predict(test)[1][:, column].mean().item()
    feed(learner, late[1:], curator)
    then = learner.predict(test)[1][:, column].mean().item()
    assert then > min(0.9, first), f"a late class must improve with its own images: from {first:.2f} to {then:.2f}"


CHECKS: list[Callable[[Factory], None]] = [
    predicts_after_its_first_batch_and_as_wide_as_the_taxonomy,
    copes_with_a_level_between_known_ones,
    copes_without_any_link,
    copes_with_classes_that_have_no_image_yet,
    copes_with_links_that_move,
    copes_with_renamed_and_merged_classes,
    copes_with_batches_of_one_level,
    copes_with_a_batch_of_one,
    copes_with_a_buffer_smaller_than_the_replay_batch,
    predict_is_pure,
    predict_does_not_depend_on_the_other_images,
    same_seed_same_learner,
    resumed_equals_uninterrupted,
    a_reader_stays_as_it_is,
    leaves_batch_and_taxonomy_alone,
    new_classes_do_train,
]
