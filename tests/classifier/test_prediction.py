from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from dhocl import Classifier, Guess, InputError, Taxonomy
from dhocl.checks import pictures
from dhocl.classifier.files import predict_files
from dhocl.classifier.prediction import name_predictions
from dhocl.core.decode import Beliefs
from tests.helpers.albums import draw

LEVELS = ("kind", "species")


def named(tree: Taxonomy, posterior: list[float], decode: str = "path", top: int = 1) -> object:
    paths = torch.tensor([[0, 0], [0, 1], [1, 2]])
    p = torch.tensor([posterior])
    beliefs = Beliefs({0: torch.tensor([[0.2, 0.8]]), 1: p}, p, paths)
    return name_predictions(beliefs, tree, LEVELS, decode, top)[0]  # type: ignore[arg-type]


def test_a_path_with_the_probability_of_each_class(tree: Taxonomy) -> None:
    found = named(tree, [0.5, 0.25, 0.25], top=3)
    assert found.path == {"kind": "bird", "species": "robin"}
    assert found.levels == {"kind": Guess("bird", 0.75), "species": Guess("robin", 0.5)}
    assert found.alternatives["kind"] == (Guess("fish", 0.25),)
    assert {guess.name for guess in found.alternatives["species"]} == {"crow", "cod"}
    assert repr(found) == "bird 0.75 > robin 0.50"
    assert list(found.sure(0.6)) == ["kind"]
    assert found.sure(0.9) == {}


def test_levels_by_themselves_on_request(tree: Taxonomy) -> None:
    found = named(tree, [0.5, 0.25, 0.25], decode="level")
    assert (found.levels["kind"].name, found.levels["species"].name) == ("fish", "robin")
    assert found.path == {"kind": "bird", "species": "robin"}
    assert repr(found) == "kind fish 0.80, species robin 0.50"


def test_a_parent_is_never_less_probable_than_its_child() -> None:
    classifier = Classifier(LEVELS, method="acil", backbone="tiny", image_size=32)
    rng = np.random.default_rng(0)
    images = pictures(rng.integers(0, 4, 40).tolist(), rng)
    classifier.learn(images, [("bird", "kind"), ("robin", "species"), ("fish", "kind"), ("crow", "species")] * 10)
    classifier.link(("robin", "species"), ("bird", "kind"))
    classifier.link(("crow", "species"), ("bird", "kind"))
    for found in classifier.predict(images):
        chances = [found.levels[level].probability for level in found.path]
        assert all(above >= below - 1e-6 for above, below in pairwise(chances))


def test_arguments_are_checked() -> None:
    classifier = Classifier(LEVELS, method="acil", backbone="tiny", image_size=32)
    classifier.learn(pictures([0], np.random.default_rng(0)), [("robin", "species")])
    with pytest.raises(InputError, match="`decode` tree: one of level, path"):
        classifier.predict(pictures([0], np.random.default_rng(0)), decode="tree")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`top` 0: at least 1"):
        classifier.predict(pictures([0], np.random.default_rng(0)), top=0)


@pytest.mark.parametrize("long", [1000, 3])
def test_files_are_predicted_like_images(long: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, and by worker processes."""
    monkeypatch.setattr("dhocl.data.files.LONG", long)
    monkeypatch.setattr("dhocl.classifier.files.BATCH", 2)
    classifier = Classifier(LEVELS, method="acil", backbone="tiny", image_size=32)
    rng = np.random.default_rng(0)
    classifier.learn(pictures([0, 1, 2, 3], rng), [(name, "species") for name in ("robin", "crow", "cod", "carp")])
    paths = draw(tmp_path, ["robin", "crow", "cod"])
    given = [paths[0], tmp_path / "gone.png", *paths[1:]]
    found = list(predict_files(classifier, given))
    assert [each.path for each in found] == given
    assert found[1].prediction is None
    assert "gone.png is missing" in found[1].problem
    read = [each.prediction for each in found if each.prediction]
    assert [p.path for p in read] == [p.path for p in classifier.predict(paths)]
