from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dhocl.core.errors import InputError
from dhocl.data import Selection, dataset, load
from dhocl.data.files import Files
from tests.helpers.fakes import AIRCRAFT, KINDS, aircraft, aircraft_colour, pack

ROOT = "fgvc-aircraft-2013b"


@pytest.mark.parametrize("kind", KINDS)
def test_each_image_has_its_variant_and_lost_its_banner(tmp_path: Path, kind: str) -> None:
    pack(aircraft(), tmp_path / "data", ROOT, kind)
    for _ in range(2):  # the second time from the cache
        found = load("aircraft", Selection(tmp_path / "data", image_size=8))
        assert found.levels == ("manufacturer", "family", "variant")
        assert (len(found.train), len(found.test)) == (8, 4)
        for split, test in ((found.train, False), (found.test, True)):
            names = [found.tree.labels[node].name for node in split.nodes.tolist()]
            colours = torch.tensor([aircraft_colour(list(AIRCRAFT).index(name), test) for name in names])
            assert (split.images - colours[:, :, None, None]).abs().max() < 10  # JPEG, and no white anywhere


def test_the_tree_is_that_of_the_lists(tmp_path: Path) -> None:
    pack(aircraft(), tmp_path, ROOT, "folder")
    found = load("aircraft", Selection(tmp_path, image_size=8))
    assert found.tree.widths == {0: 2, 1: 3, 2: 4}
    for node in found.train.nodes.tolist():
        variant, family, manufacturer = (found.tree.labels[n].name for n in found.tree.lineage(node))
        assert AIRCRAFT[variant] == (manufacturer, family)


def test_large_images_stay_in_the_extracted_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(aircraft(), tmp_path, ROOT, "folder")
    memory = load("aircraft", Selection(tmp_path, image_size=8))
    monkeypatch.setattr(dataset, "IN_MEMORY", 0)
    files = load("aircraft", Selection(tmp_path, image_size=8))
    assert isinstance(files.train.images, Files)
    rows = torch.arange(8)
    assert torch.equal(files.train.images[rows], memory.train.images[rows])


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("family_test", b" DC-3", b"", r"line 4: expected the number of an image"),
        ("family_test", b"3000001", b"9000001", r"other images than the manufacturers' list"),
        ("family_test", b"Boeing 737", b"Boeing 747", "puts a variant into two families"),
    ],
    ids=["name", "image", "tree"],
)
def test_lists_that_are_not_the_published_ones(tmp_path: Path, file: str, old: bytes, new: bytes, message: str) -> None:
    files, name = aircraft(), f"data/images_{file}.txt"
    assert old in files[name]
    pack(files | {name: files[name].replace(old, new)}, tmp_path, ROOT, ".tar")
    with pytest.raises(InputError, match=message) as error:
        load("aircraft", Selection(tmp_path, image_size=8))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["folder", ".tar.gz"])
def test_a_missing_and_a_damaged_image(tmp_path: Path, kind: str) -> None:
    files = aircraft()
    name = next(file for file in files if file.endswith(".jpg"))
    pack({file: content for file, content in files.items() if file != name}, tmp_path / "a", ROOT, kind)
    with pytest.raises(InputError, match=name):
        load("aircraft", Selection(tmp_path / "a", image_size=8))
    pack(files | {name: files[name][:100]}, tmp_path / "b", ROOT, kind)
    with pytest.raises(InputError, match=f"{name}.* is damaged"):
        load("aircraft", Selection(tmp_path / "b", image_size=8))
