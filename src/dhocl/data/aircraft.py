"""FGVC-Aircraft (2013b): 100 variants of aircraft, 10,000 photographs, under family and manufacturer."""

from __future__ import annotations

import numpy as np

from dhocl.core.errors import InputError
from dhocl.data import cache
from dhocl.data.archive import Archive, locate
from dhocl.data.dataset import Fetch, Selection, Source, Table
from dhocl.data.files import Files, from_archive
from dhocl.data.lineage import grow

LEVELS = ("manufacturer", "family", "variant")
SIZE = 224
BANNER = 20  # pixel rows with a copyright notice at the bottom of each photograph
ORIGIN = "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz"

Lineage = tuple[str, ...]


def read(selection: Selection) -> Source:
    archive = locate(selection.data, "fgvc-aircraft-2013b", ORIGIN)
    train, test = _index(archive)
    lineages = sorted({*train.values(), *test.values()})
    if len({variant for *_, variant in lineages}) < len(lineages):
        raise InputError(f"{archive.path} puts a variant into two families or manufacturers: download it again")
    tree, leaves = grow(lineages)
    node = dict(zip(lineages, leaves.tolist(), strict=True))
    size = selection.image_size or SIZE
    tables = [
        Table(np.array([node[lineage] for lineage in part.values()], dtype=np.int64), images)
        for part, images in zip((train, test), _images(archive, list(train), list(test), size), strict=True)
    ]
    return Source("aircraft", LEVELS, tree, tables[0], tables[1], flip=True)


def _index(archive: Archive) -> tuple[dict[str, Lineage], dict[str, Lineage]]:
    """Image -> manufacturer, family and variant, of the training and the test images."""
    lists = {(level, part): f"data/images_{level}_{part}.txt" for part in ("trainval", "test") for level in LEVELS}
    contents = dict(archive.read(list(lists.values())))
    line = "the number of an image, a space and a name"
    named = {key: archive.pairs(file, contents[file], line) for key, file in lists.items()}
    found = []
    for part in ("trainval", "test"):
        images = named[LEVELS[0], part].keys()
        for level in LEVELS[1:]:
            if named[level, part].keys() != images:
                raise archive.malformed(lists[level, part], "it lists other images than the manufacturers' list")
        found.append(
            {f"data/images/{image}.jpg": tuple(named[level, part][image] for level in LEVELS) for image in images}
        )
    return found[0], found[1]


def _images(archive: Archive, train: list[str], test: list[str], size: int) -> list[Files | Fetch]:
    """An extracted folder is read on demand. An archive is decoded at once, since it can only be read in sequence."""
    if archive.path.is_dir():
        return [Files(archive.path, part, size, BANNER) for part in (train, test)]
    (images,) = cache.arrays(
        cache.key(f"aircraft-{size}px", archive.stamp(()), size),
        ("images",),
        lambda: [from_archive(archive, [*train, *test], size, "decoding FGVC-Aircraft", BANNER)],
    )
    return [lambda wanted: images[wanted], lambda wanted: images[len(train) + wanted]]
