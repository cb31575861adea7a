"""Data of other people: what arrives is what they gave, and mistakes are one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Taxonomy
from dhocl.data import Selection, Source, check, load
from dhocl.data.adapters import from_huggingface, from_pairs, from_torchvision
from dhocl.data.files import Files
from dhocl.data.lineage import grow

LEVELS = ("kind", "species")
SPECIES = ("robin", "wren", "cod")


def birds() -> Taxonomy:
    return grow([("bird", "robin"), ("bird", "wren"), ("fish", "cod")])[0]


def grey(value: int, size: int = 8) -> np.ndarray:
    return np.full((size, size, 3), value, dtype=np.uint8)


def pairs(*names: str, level: str = "species") -> list[tuple[Any, tuple[str, str]]]:
    """The image of row r has the value r."""
    return [(grey(row), (name, level)) for row, name in enumerate(names)]


def shown(source: Source) -> list[str]:
    return [source.tree.labels[node].name for node in source.train.nodes]


def values(source: Source, rows: Sequence[int]) -> list[int]:
    assert not isinstance(source.train.images, Files)
    return source.train.images(np.array(rows))[:, 0, 0, 0].tolist()


def test_pairs_keep_images_and_labels_together() -> None:
    source = from_pairs(pairs("wren", "cod", "robin"), pairs("cod"), birds(), LEVELS, image_size=8)
    assert shown(source) == ["wren", "cod", "robin"]
    assert values(source, [2, 0]) == [2, 0]
    assert (source.levels, source.given, len(source.test.nodes)) == (LEVELS, False, 1)


@pytest.mark.parametrize(
    "image",
    [grey(7, 20), torch.full((3, 20, 20), 7, dtype=torch.uint8), Image.new("RGB", (20, 30), (7, 7, 7)), "image.png"],
    ids=["array", "tensor", "PIL", "path"],
)
def test_an_image_may_be_of_any_kind(image: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (9, 9), (7, 7, 7)).save("image.png")
    mixed = [(image, ("robin", "species")), (grey(7), ("cod", "species"))]
    source = from_pairs(mixed, [], birds(), LEVELS, image_size=8)
    assert (source.train.images(np.array([0, 1])) == grey(7)).all()  # type: ignore[operator]


def test_paths_stay_in_their_files_and_do_not_depend_on_the_place(tmp_path: Path) -> None:
    digests = []
    for place in ("here", "there"):
        folder = tmp_path / place
        (folder / "a").mkdir(parents=True)
        (folder / "b").mkdir()
        for name, value in (("a/1.png", 10), ("b/2.png", 20)):
            Image.new("RGB", (8, 8), (value,) * 3).save(folder / name)
        rows = [(folder / "a/1.png", ("robin", "species")), (str(folder / "b/2.png"), ("cod", "species"))]
        source = from_pairs(rows, [], birds(), LEVELS, image_size=8)
        assert isinstance(source.train.images, Files)
        assert source.train.images[torch.tensor([1, 0])][:, 0, 0, 0].tolist() == [20, 10]
        digests.append(list(source.train.images.identity()))
    assert digests[0] == digests[1]


def test_labels_above_the_finest_level_make_a_stream_of_its_own() -> None:
    source = from_pairs([*pairs("wren"), *pairs("fish", level="kind")], [], birds(), LEVELS, image_size=8)
    assert source.given
    assert shown(source) == ["wren", "fish"]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([], "train is empty"),
        ([(grey(0), "robin")], r"train\[0\] is 'robin': write it as \(name, level\)"),
        (pairs("robin", level="genus"), r"train\[0\] has the level 'genus': choose one of kind, species"),
        (pairs("robin", "eel"), r"train\[1\], 'eel', is not in the tree at level 'species'"),
        (pairs("bird"), "not in the tree at level 'species'"),
    ],
)
def test_mistakes_in_pairs_are_one_line(train: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_pairs(train, [], birds(), LEVELS)


def test_every_level_of_the_tree_has_a_name() -> None:
    with pytest.raises(InputError, match="the tree has 2 levels, but there are names for 1"):
        from_pairs(pairs("bird", level="kind"), [], birds(), ("kind",))


def test_an_image_that_can_not_be_read_is_named() -> None:
    source = from_pairs([(grey(0)[0], ("robin", "species"))], [], birds(), LEVELS)
    with pytest.raises(InputError, match=r"train\[0\] has shape \(8, 3\)"):
        source.train.images(np.array([0]))  # type: ignore[operator]


class Vision:
    """A data set as torchvision has them."""

    classes = ("cod", "robin", "wren")

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row: int) -> tuple[Image.Image, int]:
        self.read.append(row)
        return Image.new("L", (10, 10), row), self.numbers[row]


class Targets(Vision):
    @property
    def targets(self) -> torch.Tensor:
        return torch.tensor(self.numbers)


@pytest.mark.parametrize("kind", [Vision, Targets])
def test_a_torchvision_data_set(kind: type[Vision]) -> None:
    train = kind([2, 0, 1])
    source = from_torchvision(train, kind([0]), birds(), LEVELS, image_size=8)
    assert shown(source) == ["wren", "cod", "robin"]
    assert (train.read == []) == (kind is Targets), "where there are targets, no image is decoded for its label"
    assert values(source, [0, 2]) == [0, 2]


class ClassLabel:
    def __init__(self, *names: str) -> None:
        self.names = list(names)


class Columns:
    """A data set as the library `datasets` has them."""

    def __init__(self, features: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        self.features, self._rows = features, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: int | str) -> Any:
        return self._rows[key] if isinstance(key, int) else [row[key] for row in self._rows]


FEATURES = {"img": None, "coarse": ClassLabel("bird", "fish"), "fine": ClassLabel("cod", "robin", "wren")}


def table(*rows: tuple[Any, Any], features: dict[str, Any] = FEATURES) -> Columns:
    cells = [(Image.new("RGB", (8, 8), (place,) * 3), *labels) for place, labels in enumerate(rows)]
    return Columns(features, [dict(zip(features, row, strict=True)) for row in cells])


COLUMNS = {"kind": "coarse", "species": "fine"}


def test_a_data_set_of_columns_brings_its_tree() -> None:
    source = from_huggingface(table((0, 1), (1, 0), (0, 2)), table((0, 1)), COLUMNS, image="img", image_size=8)
    assert shown(source) == ["robin", "cod", "wren"]
    assert values(source, [2, 1]) == [2, 1]
    tree = source.tree
    above = {tree.labels[node].name: tree.labels[tree.parent(node)].name for node in source.train.nodes}
    assert above == {"robin": "bird", "cod": "fish", "wren": "bird"}
    assert source.test.nodes.tolist() == source.train.nodes[:1].tolist()
    assert (source.levels, source.given) == (("kind", "species"), False)


@pytest.mark.parametrize("unknown", [-1, None])
def test_an_unknown_label_stops_above(unknown: int | None) -> None:
    source = from_huggingface(table((0, 1), (1, unknown)), [], COLUMNS, image="img", image_size=8)
    assert shown(source) == ["robin", "fish"]
    assert source.given


def test_labels_may_be_text_and_names_below_two_parents_are_told_apart() -> None:
    text = {"img": None, "coarse": object(), "fine": object()}
    rows = table(("Moraceae", "Morus"), ("Sulidae", "Morus"), ("Sulidae", ""), features=text)
    source = from_huggingface(rows, [], COLUMNS, image="img", image_size=8)
    assert shown(source) == ["Morus (Moraceae)", "Morus (Sulidae)", "Sulidae"]


def test_mistakes_in_columns_are_one_line() -> None:
    with pytest.raises(InputError, match="train has no column 'label': choose one of img, coarse, fine"):
        from_huggingface(table((0, 1)), [], {"kind": "coarse", "species": "label"})
    with pytest.raises(InputError, match=r"test\[0\] has no label: fill in one of coarse, fine"):
        from_huggingface(table((0, 1)), table((-1, None)), COLUMNS)


def test_the_library_itself() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "img": datasets.Image(),
            "coarse": datasets.ClassLabel(names=["bird", "fish"]),
            "fine": datasets.ClassLabel(names=["cod", "robin"]),
        }
    )
    rows = {"img": [Image.new("RGB", (8, 8), (row,) * 3) for row in (0, 1)], "coarse": [0, 1], "fine": [1, 0]}
    source = from_huggingface(
        datasets.Dataset.from_dict(rows, features=features), [], COLUMNS, image="img", image_size=8
    )
    assert shown(source) == ["robin", "cod"]
    assert values(source, [1]) == [1]


# -- a function of one's own, where a data set is named --------------------------------------------------------------


def mine(selection: Selection) -> Source:
    return from_pairs(pairs(*SPECIES * 5), [], birds(), LEVELS, image_size=selection.image_size or 16)


def not_mine(selection: Selection) -> str:
    return "a table"


NUMBER = 3


@pytest.mark.parametrize("name", [mine, f"{__name__}:mine"])
def test_a_function_is_a_data_set(name: Any) -> None:
    dataset = load(name, Selection(samples=6, test_samples=3, image_size=8))
    assert (len(dataset.train), len(dataset.test)) == (6, 3)
    assert dataset.train.images.shape[1:] == (3, 8, 8)  # type: ignore[union-attr]


def test_what_gives_no_source_is_told() -> None:
    with pytest.raises(InputError, match=r"not_mine returned str, not a Source: see dhocl\.data\.adapters"):
        check(f"{__name__}:not_mine", Selection())
    with pytest.raises(InputError, match="expected a function that takes a Selection, not 3"):
        check(f"{__name__}:NUMBER", Selection())
