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
from dhocl.core.decode import Beliefs, believe
from dhocl.core.taxonomy import Label
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


def believed(kinds: list[float], species: list[float]) -> Beliefs:
    """Of three species, two of them birds."""
    tree = Taxonomy()
    bird, fish = tree.add(Label("bird", 0)), tree.add(Label("fish", 0))
    for name, parent in [("robin", bird), ("crow", bird), ("cod", fish)]:
        tree.link(tree.add(Label(name, 1)), parent)
    return believe({0: torch.tensor([kinds]), 1: torch.tensor([species])}, tree)


def test_a_path_is_consistent_and_its_probabilities_add_up(tree: Taxonomy) -> None:
    (found,) = name_predictions(believed([0.6, 0.4], [0.3, 0.25, 0.45]), tree, LEVELS, top=3)
    weights = {"robin": 0.6 * 0.3, "crow": 0.6 * 0.25, "cod": 0.4 * 0.45}  # by hand
    chance = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    content = found.to_json(0.5)
    assert list(content) == ["path", "answer", "new", "only", "familiar", "alternatives"]
    bird, robin = content["path"]
    assert bird == {"rank": "kind", "name": "bird", "probability": pytest.approx(chance["robin"] + chance["crow"])}
    assert robin == {"rank": "species", "name": "robin", "probability": pytest.approx(chance["robin"], abs=1e-6)}
    assert content["answer"] == bird, "robin is not sure enough"
    others = {guess["name"]: guess["probability"] for guess in content["alternatives"]["species"]}
    assert others == {name: pytest.approx(chance[name], abs=1e-6) for name in ("cod", "crow")}
    assert found.probability == found.on_path["species"].probability


@pytest.mark.parametrize(("confidence", "answer"), [(0.0, "robin"), (0.9, None)])
def test_how_deep_an_answer_goes(tree: Taxonomy, confidence: float, answer: str | None) -> None:
    (found,) = name_predictions(believed([0.6, 0.4], [0.4, 0.25, 0.35]), tree, LEVELS)
    content = found.to_json(confidence)
    assert (content["answer"] and content["answer"]["name"]) == answer


def test_levels_by_themselves_in_json(tree: Taxonomy) -> None:
    (found,) = name_predictions(believed([0.6, 0.4], [0.3, 0.25, 0.45]), tree, LEVELS, "level", top=2)
    content = found.to_json(0.0, "level")
    assert [node["name"] for node in content["path"]] == ["bird", "robin"], "the path stays"
    assert content["ranks"]["species"] == [
        {"name": "cod", "probability": 0.45},
        {"name": "robin", "probability": 0.3},
    ]
    assert "alternatives" not in content


def test_a_rank_that_the_path_does_not_reach_has_its_best_class_among_the_alternatives() -> None:
    tree = Taxonomy()
    tree.add(Label("bird", 0))
    tree.link(tree.add(Label("cod", 1)), tree.add(Label("fish", 0)))
    beliefs = believe({0: torch.tensor([[0.9, 0.1]]), 1: torch.tensor([[1.0]])}, tree)
    (found,) = name_predictions(beliefs, tree, LEVELS)
    content = found.to_json()
    assert found.path == {"kind": "bird"}
    assert [guess["name"] for guess in content["alternatives"]["species"]] == ["cod"]
    assert content["alternatives"]["kind"] == []


def test_the_answer_ends_above_what_is_new(tree: Taxonomy) -> None:
    beliefs = believe({0: torch.tensor([[0.9, 0.1]]), 1: torch.tensor([[0.8, 0.1, 0.1]])}, tree)
    strange = beliefs._replace(familiar={0: torch.tensor([0.4]), 1: torch.tensor([0.03])})
    (found,) = name_predictions(strange, tree, ("kind", "species"))
    assert (found.new, found.note) == ("species", "new species?")
    assert str(found) == f"{found.levels['kind']} > new species?"
    content = found.to_json()
    assert (content["answer"]["name"], content["new"]) == ("bird", "species")
    assert content["familiar"] == {"kind": pytest.approx(0.4), "species": pytest.approx(0.03)}
    (found,) = name_predictions(strange, tree, ("kind", "species"), false_alarms=0.02)
    assert (found.new, found.to_json()["answer"]["name"]) == (None, "robin")
    nothing = strange._replace(familiar={0: torch.tensor([0.01]), 1: torch.tensor([0.03])})
    (found,) = name_predictions(nothing, tree, ("kind", "species"))
    assert (found.new, found.to_json()["answer"], str(found)) == ("kind", None, "new kind?")
