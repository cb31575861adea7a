"""iNaturalist 2018 and 2019: species of all kingdoms with seven ranks.

The lists of images have obfuscated species names; `categories.json` has the real ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dhocl.core.errors import InputError
from dhocl.data.archive import Archive, escapes
from dhocl.data.dataset import Selection, Source, Table
from dhocl.data.files import Files
from dhocl.data.lineage import disambiguate, grow

LEVELS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")
FIELDS = (*LEVELS[:-1], "name")  # of a category
SIZE = 224


def read(selection: Selection, year: int) -> Source:
    origin = f"https://github.com/visipedia/inat_comp/tree/master/{year}"
    data = _located(selection.data, year, origin)
    try:
        categories = {category["id"]: category for category in _json(data, "categories.json", origin)}
        tree, nodes = grow(disambiguate([str(category[field]) for field in FIELDS] for category in categories.values()))
    except (KeyError, TypeError):
        raise _malformed(data / "categories.json", f"a list of categories with id, {', '.join(FIELDS)}") from None
    node = dict(zip(categories, nodes.tolist(), strict=True))
    size = selection.image_size or SIZE
    tables = []
    for part in ("train", "val"):
        file = f"{part}{year}.json"
        try:
            listed = _json(data, file, origin)
            if {category["id"] for category in listed["categories"]} != node.keys():
                raise InputError(f"{data / 'categories.json'} is not of {year}: use a separate folder for each year")
            tables.append(_table(listed, node, data, size))
        except (KeyError, TypeError):
            raise _malformed(data / file, "images and annotations as in COCO, of the categories listed") from None
    return Source(f"inaturalist{year}", LEVELS, tree, tables[0], tables[1], flip=True)


def _located(data: Path | None, year: int, origin: str) -> Path:
    images = f"train_val{year}"
    if data is None or not data.is_dir():
        raise InputError(f"`data` must be a folder with {images}/ and its lists; got {data}: they are at {origin}")
    if not (data / images).is_dir():
        archive = data / f"{images}.tar.gz"
        remedy = f"tar -xzf {archive} -C {data}" if archive.is_file() else f"download it from {origin}"
        raise InputError(f"{data} has no folder {images}/ with the images: {remedy}")
    return data


def _json(data: Path, name: str, origin: str) -> Any:
    """The content of a file, which may still be in its archive."""
    file, packed = data / name, data / f"{name}.tar.gz"
    if not (file.is_file() or packed.is_file()):
        raise InputError(f"{data} has neither {name} nor {packed.name}: download it from {origin}")
    content = file.read_bytes() if file.is_file() else dict(Archive(packed, ".").read([name]))[name]
    try:
        return json.loads(content)
    except ValueError:  # not JSON, or not text
        raise _malformed(file, "JSON") from None


def _table(listed: dict[str, Any], node: dict[int, int], data: Path, size: int) -> Table:
    shown = {entry["image_id"]: node[entry["category_id"]] for entry in listed["annotations"]}
    names = [image["file_name"] for image in listed["images"]]
    if outside := [name for name in names if escapes(name)]:
        raise InputError(f"{data} lists the file {outside[0]!r}, which is outside of it: download it again")
    nodes = np.array([shown[image["id"]] for image in listed["images"]], dtype=np.int64)
    return Table(nodes, Files(data, names, size))


def _malformed(file: Path, expected: str) -> InputError:
    return InputError(f"{file} is not the published file (expected {expected}): download it again")
