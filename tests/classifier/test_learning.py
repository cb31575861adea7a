from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dhocl import Classifier, InputError, Label
from dhocl.classifier.files import open_model
from dhocl.classifier.learning import learn_album
from dhocl.core.files import locked
from dhocl.knowledge import Silent
from tests.helpers.albums import KINDS, draw, labelled

TINY = {"backbone": "tiny", "image_size": 32, "method": "acil"}


def learn(folder: Path, data: Path, **options: object) -> Classifier:
    *_, last = learn_album(folder, data, dict(options))
    return last.classifier


def parents(classifier: Classifier) -> dict[str, str]:
    tree, found = classifier.taxonomy, {}
    for label in tree:
        if (parent := tree.parent(tree.id(label))) >= 0:
            found[label.name] = tree.labels[parent].name
    return found


def test_an_interruption_loses_what_came_after_the_last_checkpoint(tmp_path: Path) -> None:
    data = labelled(tmp_path / "photos", 200)
    steps = learn_album(tmp_path / "m", data, TINY, every=64)
    saved = [next(steps).saved for _ in range(6)]  # batches of 32
    assert saved == [0, 0, 64, 64, 128, 128]
    steps.close()  # type: ignore[attr-defined]
    assert len(Classifier.load(tmp_path / "m").learned) == 128
    first = next(iter(learn_album(tmp_path / "m", data, {})))
    assert (first.before, first.total) == (128, 72)
    halves, whole = learn(tmp_path / "m", data), learn(tmp_path / "whole", data, **TINY)
    images = sorted((data / "images").iterdir())
    assert halves.predict(images) == whole.predict(images)


def test_a_minute_without_a_checkpoint_brings_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhocl.classifier.learning.AT_LEAST", 0.0)
    steps = learn_album(tmp_path / "m", labelled(tmp_path / "photos", 64), TINY)
    assert [next(steps).saved for _ in range(3)] == [0, 32, 64]


def test_folders_tell_parents_also_to_a_model_that_knows_the_class(tmp_path: Path) -> None:
    for kind in ("robin", "cod"):
        draw(tmp_path / "flat" / kind, [kind])
    flat = learn(tmp_path / "m", tmp_path / "flat", levels=["kind", "species"], **TINY)
    assert parents(flat) == {}
    for species, kind in KINDS.items():
        draw(tmp_path / "deep" / kind / species, [species] * 2)
    draw(tmp_path / "deep" / "bird", ["robin"], seed=3)
    draw(tmp_path / "deep" / "fish", ["cod"], seed=3)
    assert parents(learn(tmp_path / "m", tmp_path / "deep")) == KINDS


def test_mistakes_in_labels_are_asked_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = labelled(tmp_path / "photos", 16)
    learn(tmp_path / "m", data, **TINY)
    caplog.clear()
    table = tmp_path / "more.csv"
    paths = draw(tmp_path / "new", ["robin", "cod", "crow"])
    rows = [f"{path};bird;{name}" for path, name in zip(paths, ("robbin", "cod", "crow"), strict=True)]
    table.write_text("\n".join(["path;kind;species", *rows]))
    with caplog.at_level(logging.WARNING):
        learned = learn(tmp_path / "m", table)
    told = [record.getMessage() for record in caplog.records]
    assert "'robbin' (species, images: 1) is new: is it 'robin'?" in told
    assert f"is cod below fish, or below bird as in {table}? The former is kept" in told
    assert len(told) == 2
    assert parents(learned)["cod"] == "fish"
    assert Label("robbin", 1) in learned.taxonomy, "a question, no refusal"


def test_a_name_of_the_tree_is_no_mistake(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = labelled(tmp_path / "photos", 16)
    with (data / "tree.tsv").open("a") as tree:
        tree.write("\nrobbin\tspecies\tbird")
    (path,) = draw(data / "new", ["robin"])
    with (data / "labels.csv").open("a") as table:
        table.write(f"{path},robbin,species\n")
    with caplog.at_level(logging.WARNING):
        learn(tmp_path / "m", data, **TINY)
    assert not caplog.records


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    data = labelled(tmp_path / "photos", 8)
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")
    with pytest.raises(InputError, match="is the folder of a run or of a service"):
        learn(run, data)
    learn(tmp_path / "m", data, **TINY)
    with locked(tmp_path / "m"), pytest.raises(InputError, match="in use by another process"):
        learn(tmp_path / "m", data)
    with pytest.raises(InputError, match="was created with `levels` kind,species: leave the option out"):
        learn(tmp_path / "m", data, levels=["species"])
    with pytest.raises(InputError, match="no such file or folder"):
        learn(tmp_path / "new", tmp_path / "nowhere")
    assert not (tmp_path / "new").exists()


def test_test_images_are_not_learned(tmp_path: Path) -> None:
    data = labelled(tmp_path / "photos", 8)
    rows = (data / "labels.csv").read_text().splitlines()
    marked = [rows[0] + ",split", *(row + (",test" if place % 2 else ",") for place, row in enumerate(rows[1:]))]
    (data / "labels.csv").write_text("\n".join(marked))
    assert len(learn(tmp_path / "m", data, **TINY).learned) == 4
    (data / "labels.csv").write_text("\n".join([marked[0], *(row for row in marked if row.endswith("test"))]))
    with pytest.raises(InputError, match="all photographs are marked as test"):
        learn(tmp_path / "m", data)


def test_ranks_are_known_in_any_case_and_must_be_a_list(tmp_path: Path) -> None:
    classifier = learn(tmp_path / "m", labelled(tmp_path / "photos", 8), **TINY)
    image = sorted((tmp_path / "photos" / "images").iterdir())[0]
    classifier.learn(image, [("wren", "Species")])
    assert Label("wren", 1) in classifier.taxonomy
    with pytest.raises(InputError, match="`levels` 'family,genus' is text: give a list of names"):
        Classifier("family,genus")


def test_a_model_that_learned_with_a_source_predicts_without(tmp_path: Path) -> None:
    data = labelled(tmp_path / "photos", 8)
    images = sorted((data / "images").iterdir())
    classifier = Classifier(["kind", "species"], source=Silent(), **TINY)
    classifier.learn(images[:1], [("robin", "species")])
    classifier.save(tmp_path / "m")
    assert open_model(tmp_path / "m").predict(images) == classifier.predict(images)
    with pytest.raises(InputError, match="had a knowledge source of its own"):
        learn(tmp_path / "m", data)
