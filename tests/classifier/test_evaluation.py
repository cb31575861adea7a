from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_fscore_support

from dhocl import Classifier, InputError, Label, Taxonomy
from dhocl.checks import LEAVES, pictures
from dhocl.classifier.evaluation import Confusion, Evaluation, Evaluator
from dhocl.core.decode import Beliefs, believe
from dhocl.core.taxonomy import UNKNOWN

LEVELS = ("kind", "species")


@pytest.fixture
def tree(tree: Taxonomy) -> Taxonomy:
    """With eel, which is not placed."""
    tree.add(Label("eel", 1))
    return tree


def beliefs(tree: Taxonomy, *posteriors: tuple[float, ...]) -> Beliefs:
    """Of distributions over the paths of robin, crow, cod and eel."""
    paths = torch.tensor([[0, 0], [0, 1], [1, 2], [UNKNOWN, 3]])
    p = torch.tensor(posteriors)
    kinds = torch.tensor([[0.3, 0.7]]).expand(len(p), 2)
    return Beliefs({0: kinds, 1: p.clone()}, p, paths)


def evaluated(tree: Taxonomy, found: Beliefs, *truths: dict[int, str]) -> Evaluation:
    evaluator = Evaluator(tree, LEVELS)
    evaluator.add(found, truths)
    return evaluator.result()


def test_the_numbers_of_five_images_by_hand(tree: Taxonomy) -> None:
    found = evaluated(
        tree,
        beliefs(
            tree,
            (0.6, 0.3, 0.1, 0.0),  # robin: right
            (0.7, 0.2, 0.1, 0.0),  # robin instead of crow: right kind
            (0.8, 0.1, 0.1, 0.0),  # robin instead of cod
            (0.1, 0.1, 0.8, 0.0),  # cod, labelled as a fish
            (0.1, 0.1, 0.8, 0.0),  # cod, labelled as a shark
        ),
        {1: "robin"},
        {1: "crow"},
        {1: "cod"},
        {0: "fish"},
        {0: "fish", 1: "shark"},
    )
    kind, species = found.ranks
    assert (kind.images, species.images) == (5, 3)
    assert (kind.unknown, species.unknown) == (0, 1)
    assert kind.accuracy == pytest.approx(100 * 4 / 5)
    assert species.accuracy == pytest.approx(100 * 1 / 3)
    # One image per bin at 0.6, 0.7, 0.8: |0.6 - 1| + |0.7 - 0| + |0.8 - 0|; kinds at 0.9 (4, one wrong) and 0.8 (2).
    assert species.ece == pytest.approx(100 * (0.4 + 0.7 + 0.8) / 3, abs=1e-4)
    assert kind.ece == pytest.approx(100 * (abs(3 * 0.9 - 2) + abs(2 * 0.8 - 2)) / 5, abs=1e-4)
    assert found.ms == pytest.approx((0 + 1 + 2) / 3)
    assert found.ms_mistakes == pytest.approx(1.5)
    assert found.h_f1 == pytest.approx(100 * 5 / 8), "of 8 true classes, 5 are predicted"
    scores = {score.name: score for score in found.classes["species"]}
    assert (scores["robin"].precision, scores["robin"].recall) == (pytest.approx(100 / 3), 100)
    assert (scores["crow"].precision, scores["crow"].recall) == (None, 0)
    assert found.confusions["species"] == [
        Confusion("robin", "robin", 1),
        Confusion("crow", "robin", 1),
        Confusion("cod", "robin", 1),
    ]
    assert [(mistake.row, mistake.height) for mistake in found.mistakes] == [(2, 2), (1, 1)]
    assert found.mistakes[0].true == {"kind": "fish", "species": "cod"}
    assert found.mistakes[0].predicted == {"kind": "bird", "species": "robin"}
    assert found.mistakes[0].probability == pytest.approx(0.8)
    assert repr(found) == "Evaluation(kind 80.0 %, species 33.3 %, 5 images)"


def test_where_the_path_has_no_class_the_level_decides(tree: Taxonomy) -> None:
    found = evaluated(tree, beliefs(tree, (0.0, 0.0, 0.1, 0.9)), {0: "fish", 1: "eel"})
    assert [rank.accuracy for rank in found.ranks] == [100, 100]


def test_a_stated_ancestor_overrides_that_of_the_tree(tree: Taxonomy) -> None:
    found = evaluated(tree, beliefs(tree, (1.0, 0.0, 0.0, 0.0)), {0: "fish", 1: "robin"})
    assert [rank.accuracy for rank in found.ranks] == [0, 100]


def test_precision_and_recall_agree_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    tree = Taxonomy()
    for number in range(6):
        tree.link(tree.add(Label(f"s{number}", 1)), tree.add(Label(f"k{number % 2}", 0)))
    p = torch.tensor(rng.dirichlet(np.ones(6), 200), dtype=torch.float)
    kinds = torch.stack([p[:, ::2].sum(1), p[:, 1::2].sum(1)], 1)
    true = rng.integers(0, 6, 200)
    evaluator = Evaluator(tree, LEVELS)
    for rows in np.array_split(np.arange(200), 3):
        part = believe({0: kinds[rows], 1: p[rows]}, tree)
        evaluator.add(part, [{1: f"s{true[row]}"} for row in rows])
    found = evaluator.result()
    predicted = believe({0: kinds, 1: p}, tree).choices("path")[1].column.numpy()
    precision, recall, _, count = precision_recall_fscore_support(true, predicted, zero_division=0)
    assert [score.precision or 0 for score in found.classes["species"]] == pytest.approx(100 * precision)
    assert [score.recall for score in found.classes["species"]] == pytest.approx(100 * recall)
    assert [score.images for score in found.classes["species"]] == count.tolist()
    assert sum(pair.images for pair in found.confusions["species"]) == 200


def test_a_classifier_evaluates_itself() -> None:
    rng = np.random.default_rng(0)
    classifier = Classifier(LEVELS, backbone="tiny", image_size=32, batch=8)
    leaves = rng.integers(0, 4, 64).tolist()
    images = pictures(leaves, rng)
    classifier.learn(images, [(LEAVES[leaf], "species") for leaf in leaves])
    found = classifier.evaluate(images, [(LEAVES[leaf], "species") for leaf in leaves])
    right = [p.path["species"] == LEAVES[leaf] for p, leaf in zip(classifier.predict(images), leaves, strict=True)]
    assert found.ranks[-1].accuracy == pytest.approx(100 * np.mean(right))
    assert found.images == 64
    with pytest.raises(InputError, match="64 images, but 1 labels"):
        classifier.evaluate(images, [("robin", "species")])
    with pytest.raises(InputError, match="`decode` both: one of level, path"):
        classifier.evaluate(images[:1], [("robin", "species")], decode="both")  # type: ignore[arg-type]
