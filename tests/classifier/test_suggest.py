"""`Classifier.suggest`: the rule with names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dhocl import Classifier, InputError
from dhocl.checks import pictures
from dhocl.classifier import Suggested


def small() -> Classifier:
    return Classifier(("kind", "species"), backbone="tiny", image_size=32)


def images(n: int, seed: int) -> np.ndarray:
    leaves = [place % 4 for place in range(n)]
    return pictures(leaves, np.random.default_rng(seed)).permute(0, 2, 3, 1).numpy()


def test_before_anything_is_learned() -> None:
    found = small().suggest(images(8, 1), 3)
    assert [each.level for each in found] == ["kind", "species", "species"]
    assert [repr(each) for each in found] == ["kind", "species", "species"]
    assert all(each.prediction is None and each.uncertainty == each.novelty == 1 for each in found)


def test_the_class_that_was_never_shown_comes_first() -> None:
    """Robins, crows and cod are learned, carp are not: most of the first are carp."""
    classifier, taught = small(), images(80, 2)
    names = ["robin", "crow", "cod"]
    for place, name in enumerate(names):
        classifier.learn(taught[place::4], [(name, "species")] * 20)
    pool = images(40, 3)
    found = classifier.suggest(pool, 4)
    assert sum(each.row % 4 == 3 for each in found) >= 3
    assert len({each.row for each in found}) == 4
    first = found[0]
    assert repr(first.prediction) == repr(classifier.predict(pool[[first.row]])[0])
    assert repr(first) == f"{first.level} of {first.prediction}"
    expected = classifier.model.suggest(torch.from_numpy(pool).permute(0, 3, 1, 2), 4)
    assert [each.row for each in found] == [each.row for each in expected]
    assert isinstance(first, Suggested)


def test_vectors_can_be_suggested() -> None:
    classifier = Classifier(["species"], backbone="features:2")
    classifier.learn_features([[1.0, 0.0]] * 4, [("robin", "species")] * 4)
    pool = np.array([[1.0, 0.01], [0.0, 1.0], [0.01, 1.0]])
    assert classifier.suggest(pool, 1)[0].row in (1, 2)


def test_a_count_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="count"):
        small().suggest(images(2, 1), 0)
