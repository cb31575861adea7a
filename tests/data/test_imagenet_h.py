from __future__ import annotations

import shutil
from itertools import groupby
from pathlib import Path

import pytest
import torch

from dhocl.core.errors import InputError
from dhocl.data import Dataset, Selection, dataset, load
from dhocl.data.files import Files
from dhocl.data.wordnet import Synset, lineage, read_nouns
from tests.helpers.fakes import NOUNS, WNIDS, imagenet, lay, pack


def names(found: Dataset, node: int) -> list[str]:
    """From the coarsest down."""
    return [found.tree.labels[above].name for above in reversed(found.tree.lineage(node))]


def test_a_noun_is_its_first_word_and_what_lies_above_it() -> None:
    for content in (NOUNS, NOUNS.replace("\n", "\r\n")):
        nouns = read_nouns(content.encode(), "data.noun")
        assert nouns[3] == Synset("animal", (2,))
        assert nouns[5] == Synset("bird", (3,)), "parts and members are not above"
        assert nouns[11] == Synset("Titanic", (15,), instance=True), "an instance is below"


def test_of_several_ways_to_the_root_the_shortest_and_then_the_smallest_is_taken() -> None:
    nouns = read_nouns(NOUNS.encode(), "data.noun")
    assert lineage(9, nouns) == (1, 2, 3, 9), "not by way of the dog"
    nouns[9] = Synset("Airedale", (6, 5))
    assert lineage(9, nouns) == (1, 2, 3, 5, 9)


def test_a_noun_above_itself_or_missing_is_told() -> None:
    with pytest.raises(InputError, match="noun 00000002 is missing or its own ancestor"):
        lineage(2, {1: Synset("egg", (2,)), 2: Synset("hen", (1,))})
    with pytest.raises(InputError, match="noun 00000007 is missing"):
        lineage(2, {2: Synset("hen", (7,))})


@pytest.mark.parametrize("name", ["imagenet_h", "imagenet_h_fixed"])
def test_each_image_has_its_class_and_every_path_the_full_depth(tmp_path: Path, name: str) -> None:
    found = load(name, Selection(lay(imagenet(), tmp_path), image_size=8, seed=3))
    assert found.levels == ("level 0", "level 1", "level 2", "level 3")
    assert (found.tree.paths[found.train.nodes] >= 0).all()
    for split, blue in ((found.train, 100), (found.test, 200)):
        assert len(split) == 2 * len(WNIDS)
        colours = torch.tensor([(30 * (row // 2), 90, blue) for row in range(len(split))])
        assert (split.images.float().mean((2, 3)) - colours).abs().max() < 6  # JPEG
        assert [names(found, node)[-1] for node in split.nodes.tolist()[::2]] == [
            "crane (n00000007)",
            "wren",
            "Airedale",
            "crane (n00000010)",
            "Titanic",
            "raven",
            "jay",
            "yawl",
        ]


def test_the_tree_is_wordnets_without_nodes_that_tell_nothing_apart(tmp_path: Path) -> None:
    found = load("imagenet_h_fixed", Selection(lay(imagenet(), tmp_path), image_size=8))
    paths = {tuple(name for name, _ in groupby(names(found, node))) for node in found.train.nodes.tolist()}
    assert paths == {
        ("animal", "bird", "crane (n00000007)"),
        ("animal", "bird", "wren"),
        ("animal", "bird", "corvine bird", "raven"),
        ("animal", "bird", "corvine bird", "jay"),
        ("animal", "Airedale"),
        ("artifact", "crane (n00000010)"),
        ("artifact", "ship", "Titanic"),
        ("artifact", "ship", "yawl"),
    }
    assert names(found, int(found.train.nodes[4])) == ["animal", "animal", "animal", "Airedale"]


def test_the_seed_pads_at_random_and_the_fixed_tree_is_always_the_same(tmp_path: Path) -> None:
    lay(imagenet(), tmp_path)

    def trees(name: str, seeds: range) -> set[str]:
        return {load(name, Selection(tmp_path, image_size=8, seed=seed)).tree.dumps() for seed in seeds}

    assert len(trees("imagenet_h", range(8))) > 1
    assert trees("imagenet_h", range(1)) == trees("imagenet_h", range(1))
    assert len(trees("imagenet_h_fixed", range(8))) == 1


@pytest.mark.parametrize("kind", ["folder", ".tar.gz"])
def test_wordnet_may_lie_as_it_was_published(tmp_path: Path, kind: str) -> None:
    lay(imagenet(), tmp_path)
    before = load("imagenet_h", Selection(tmp_path, image_size=8)).tree.dumps()
    shutil.rmtree(tmp_path / "dict")
    pack({"dict/data.noun": NOUNS.encode()}, tmp_path, "WordNet-3.0", kind)
    assert load("imagenet_h", Selection(tmp_path, image_size=8)).tree.dumps() == before


def test_without_validation_images_some_of_the_others_are_held_out(tmp_path: Path) -> None:
    found = load("imagenet_h", Selection(lay(imagenet(("train",)), tmp_path), image_size=8))
    assert (len(found.train), len(found.test)) == (13, 3)


def test_images_are_not_looked_at_before_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = imagenet()
    monkeypatch.setattr(dataset, "IN_MEMORY", 0)
    found = load("imagenet_h", Selection(lay(files | dict.fromkeys(files.keys() - {"dict/data.noun"}, b""), tmp_path)))
    assert isinstance(found.train.images, Files)
    with pytest.raises(InputError, match=r"n00000007_0\.JPEG is damaged"):
        found.train.images[torch.tensor([0])]


def test_no_folder_was_given_or_wordnet_forgotten(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        with pytest.raises(InputError, match="`data` must be a folder with train/"):
            load("imagenet_h", Selection(folder))
    lay(imagenet(), tmp_path)
    shutil.rmtree(tmp_path / "dict")
    with pytest.raises(InputError, match=r"holds neither WordNet-3\.0/ nor WordNet-3\.0\.tar\.gz"):
        load("imagenet_h", Selection(tmp_path))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"val/flat.JPEG": b""}, "val has no folder like n01440764: sort the images into folders"),
        ({"train/n00000099/a.JPEG": b""}, "noun 00000099 is missing"),
        ({"train/n00000012/readme.txt": b""}, "n00000012 has no image"),
        ({"val/n00000012/a.JPEG": b""}, "n00000012 has no training images"),
        ({"dict/data.noun": b"<html>\n"}, r"data\.noun in .* line 1 is not in WordNet's format"),
        ({"dict/data.noun": NOUNS.partition("Airedale")[0].encode()}, "is not in WordNet's format"),
    ],
    ids=range(6),
)
def test_damaged_inputs_are_named(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    parts = ("train", "val") if any("val/n" in name for name in files) else ("train",)
    with pytest.raises(InputError, match=message) as error:
        load("imagenet_h", Selection(lay(imagenet(parts) | files, tmp_path), image_size=8))
    assert "\n" not in str(error.value)
