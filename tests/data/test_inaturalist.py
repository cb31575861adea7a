from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.errors import InputError
from dhocl.data import Selection, load
from dhocl.data.lineage import disambiguate
from tests.helpers.fakes import SPECIES, add, inaturalist, lay


def pack_lists(folder: Path) -> None:
    """Each list in an archive of its own, as published."""
    for file in folder.glob("*.json"):
        with tarfile.open(f"{file}.tar.gz", "w:gz") as tar:
            add(tar, file.name, file.read_bytes())
        file.unlink()


@pytest.mark.parametrize("year", [2018, 2019])
@pytest.mark.parametrize("packed", [False, True])
def test_each_image_has_its_species(tmp_path: Path, year: int, packed: bool) -> None:
    lay(inaturalist(year), tmp_path)
    if packed:
        pack_lists(tmp_path)
    found = load(f"inaturalist{year}", Selection(tmp_path, image_size=8))
    assert found.levels == ("kingdom", "phylum", "class", "order", "family", "genus", "species")
    for split, blue in ((found.train, 100), (found.test, 200)):
        colours = torch.tensor([(60 * row, 255 - 60 * row, blue) for row in range(len(SPECIES))])
        assert (split.images.float().mean((2, 3)) - colours).abs().max() < 6  # JPEG
        for node, names in zip(split.nodes.tolist(), SPECIES, strict=True):
            lineage = [found.tree.labels[above].name for above in reversed(found.tree.lineage(node))]
            assert [name.partition(" (")[0] for name in lineage] == list(names)


def test_the_same_name_below_two_parents_is_two_classes(tmp_path: Path) -> None:
    found = load("inaturalist2018", Selection(lay(inaturalist(2018), tmp_path), image_size=8))
    assert found.tree.widths == {0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 3, 6: 4}
    genera = [found.tree.labels[node].name for node in found.tree.nodes(5).tolist()]
    assert genera == ["Morus (Sulidae)", "Sula", "Morus (Moraceae)"]
    species = [found.tree.labels[node].name for node in found.tree.nodes(6).tolist()]
    assert species == ["alba (Morus (Sulidae))", "Sula sula", "alba (Morus (Moraceae))", "Morus nigra"]


@given(st.lists(st.tuples(*[st.sampled_from("abc")] * 4), min_size=1))
def test_disambiguated_names_are_unique_for_each_node(lineages: list[tuple[str, ...]]) -> None:
    unique = disambiguate(lineages)
    for level in range(4):
        nodes = {lineage[: level + 1] for lineage in lineages}
        pairs = {(names[level], lineage[: level + 1]) for names, lineage in zip(unique, lineages, strict=True)}
        assert len(pairs) == len(nodes) == len({name for name, _ in pairs})


def test_images_that_are_still_packed_are_to_be_extracted(tmp_path: Path) -> None:
    files = {name: content for name, content in inaturalist(2019).items() if name.endswith(".json")}
    lay(files, tmp_path)
    with pytest.raises(InputError, match=r"has no folder train_val2019/.*download it from https"):
        load("inaturalist2019", Selection(tmp_path))
    (tmp_path / "train_val2019.tar.gz").touch()
    with pytest.raises(InputError, match=r"tar -xzf .*train_val2019\.tar\.gz -C "):
        load("inaturalist2019", Selection(tmp_path))


def test_the_categories_of_another_year_are_told(tmp_path: Path) -> None:
    files = inaturalist(2019)
    files["categories.json"] = json.dumps(json.loads(files["categories.json"])[:-1]).encode()
    with pytest.raises(InputError, match="is not of 2019: use a separate folder for each year"):
        load("inaturalist2019", Selection(lay(files, tmp_path)))


def changed(content: bytes, key: str, entry: dict[str, object]) -> bytes:
    listed = json.loads(content)
    (listed[key] if isinstance(listed, dict) else listed)[0] |= entry
    return json.dumps(listed).encode()


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("categories.json", lambda _: b"<html>", r"categories\.json is not the published file \(expected JSON\)"),
        ("categories.json", lambda _: b"[{}]", r"categories\.json is not the published file .*a list of categories"),
        ("train2018.json", lambda _: b"[1]", r"train2018\.json is not the published file .*as in COCO"),
        ("train2018.json", lambda _: b'{"categories"', r"train2018\.json is not the published file \(expected JSON\)"),
        ("train2018.json", lambda c: changed(c, "annotations", {"category_id": 1}), "annotations as in COCO"),
        ("val2018.json", lambda c: changed(c, "images", {"id": 1}), r"val2018\.json is not the published file"),
        ("val2018.json", lambda c: changed(c, "images", {"file_name": "../x"}), "'../x', which is outside"),
        ("train2018.json", lambda c: changed(c, "images", {"file_name": "x.jpg"}), r"x\.jpg is missing"),
        ("train_val2018/Animalia/7/val.jpg", lambda c: c[:100], r"7/val\.jpg is damaged"),
    ],
    ids=range(9),
)
def test_damaged_files_are_named(tmp_path: Path, file: str, change: object, message: str) -> None:
    files = inaturalist(2018)
    files[file] = change(files[file])  # type: ignore[operator]
    with pytest.raises(InputError, match=message) as error:
        load("inaturalist2018", Selection(lay(files, tmp_path), image_size=8))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["categories.json", "train2018.json", "val2018.json"])
def test_a_missing_list_is_named(tmp_path: Path, name: str) -> None:
    lay(inaturalist(2018), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=f"has neither {name} nor {name}.tar.gz: download it from"):
        load("inaturalist2018", Selection(tmp_path))
