from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dhocl.core.errors import InputError
from dhocl.data import Selection, load
from tests.helpers.fakes import KINDS, cub, cub_colour, pack

ROOT = "CUB_200_2011"


@pytest.mark.parametrize("kind", KINDS)
def test_each_image_has_its_species(tmp_path: Path, kind: str) -> None:
    pack(cub(), tmp_path / "data", ROOT, kind)
    for _ in range(2):  # the second time from the cache
        dataset = load("cub200", Selection(tmp_path / "data", image_size=8))
        for split, test in ((dataset.train, False), (dataset.test, True)):
            assert split.images.shape == (200, 3, 8, 8)
            species = dataset.tree.complete(split.nodes)[:, -1]
            assert species.tolist() == list(range(200))
            colours = torch.tensor([cub_colour(number, test) for number in species.tolist()])
            assert (split.images.float().mean((2, 3)) - colours).abs().max() < 6  # JPEG


def test_the_ranks(tmp_path: Path) -> None:
    pack(cub(), tmp_path, ROOT, ".tgz")
    plain = load("cub200", Selection(tmp_path, image_size=8))
    genus = load("cub200_genus", Selection(tmp_path, image_size=8))
    assert plain.levels == ("order", "family", "species")
    assert plain.tree.widths == {0: 13, 1: 37, 2: 200}
    assert genus.levels == ("order", "family", "genus", "species")
    assert genus.tree.widths == {0: 13, 1: 37, 2: 121, 3: 200}
    for dataset in (plain, genus):
        assert (dataset.tree.paths[dataset.train.nodes] >= 0).all()
    first = [genus.tree.labels[node].name for node in genus.tree.lineage(int(genus.train.nodes[0]))]
    assert first == ["Black footed Albatross", "Phoebastria", "Diomedeidae", "Procellariiformes"]


def test_the_default_size(tmp_path: Path) -> None:
    pack(cub(), tmp_path, ROOT, "folder")
    assert load("cub200", Selection(tmp_path, samples=2, test_samples=1)).train.images.shape == (
        2,
        3,
        224,
        224,
    )


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("classes.txt", b"1 001.Dodo\n", r"classes\.txt in .*expected the 200 species"),
        ("images.txt", b"1\n", r"images\.txt in .*line 1: expected a number"),
        ("train_test_split.txt", b"1 1\n", r"train_test_split\.txt in .*one line for each image"),
    ],
    ids=["classes", "images", "split"],
)
def test_lists_that_are_not_the_published_ones(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    pack(cub() | {file: content}, tmp_path, ROOT, ".tar")
    with pytest.raises(InputError, match=message):
        load("cub200", Selection(tmp_path, image_size=8))


def test_an_unknown_class(tmp_path: Path) -> None:
    files = cub()
    files["image_class_labels.txt"] = files["image_class_labels.txt"].replace(b"\n7 4\n", b"\n7 201\n")
    pack(files, tmp_path, ROOT, ".tar")
    with pytest.raises(InputError, match=r"image_class_labels\.txt in .*there is no class '201'"):
        load("cub200", Selection(tmp_path, image_size=8))


@pytest.mark.parametrize("kind", ["folder", ".tar.gz"])
def test_a_missing_and_a_damaged_image(tmp_path: Path, kind: str) -> None:
    files, name = cub(), "images/004.Groove_billed_Ani/b.jpg"
    pack({file: content for file, content in files.items() if file != name}, tmp_path / "a", ROOT, kind)
    with pytest.raises(InputError, match=f"lacks {ROOT}/{name}"):
        load("cub200", Selection(tmp_path / "a", image_size=8))
    pack(files | {name: files[name][:100]}, tmp_path / "b", ROOT, kind)
    with pytest.raises(InputError, match=f"{name} in .* is damaged"):
        load("cub200", Selection(tmp_path / "b", image_size=8))
