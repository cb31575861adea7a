"""CUB-200-2011: 200 species of birds, 11,788 photographs, with order, family and optionally genus."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dhocl.data import cache
from dhocl.data.archive import Archive, locate
from dhocl.data.dataset import Selection, Source, Table
from dhocl.data.files import from_archive
from dhocl.data.lineage import bundled, grow, readable

LEVELS = ("order", "family", "species")
LEVELS_GENUS = ("order", "family", "genus", "species")
SIZE = 224
ORIGIN = "https://data.caltech.edu/records/65de6-vp158"
LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")


def read(selection: Selection, genus: bool = False) -> Source:
    archive = locate(selection.data, "CUB_200_2011", ORIGIN)
    rows = bundled("cub200", ("class", "order", "family", "genus"))
    names, classes, training = cache.arrays(
        cache.key("cub200-index", archive.stamp(LISTS)),
        ("names", "classes", "training"),
        lambda: _index(archive, [row["class"] for row in rows]),
    )
    size = selection.image_size or SIZE
    files = [f"images/{name}" for name in names]
    (images,) = cache.arrays(
        cache.key(f"cub200-{size}px", archive.stamp(files), size),
        ("images",),
        lambda: [from_archive(archive, files, size, "decoding CUB-200-2011")],
    )
    ranks = LEVELS_GENUS[:-1] if genus else LEVELS[:-1]
    tree, leaves = grow([*(row[rank] for rank in ranks), _species(row["class"])] for row in rows)
    train, test = np.flatnonzero(training), np.flatnonzero(~training)
    return Source(
        "cub200_genus" if genus else "cub200",
        (*ranks, "species"),
        tree,
        Table(leaves[classes[train]], lambda wanted: images[train[wanted]]),
        Table(leaves[classes[test]], lambda wanted: images[test[wanted]]),
        flip=True,
    )


def _species(published: str) -> str:
    """The English name: the Latin one contains the genus.

    >>> _species("001.Black_footed_Albatross")
    'Black footed Albatross'
    """
    return readable(published.partition(".")[2])


def _index(archive: Archive, expected: Sequence[str]) -> list[np.ndarray]:
    """Name, class (from 0) and split of each image, in the order of the published list."""
    lists = {file: archive.pairs(file, content) for file, content in archive.read(LISTS)}
    if list(lists["classes.txt"].values()) != list(expected):
        raise archive.malformed("classes.txt", f"expected the {len(expected)} species of CUB-200-2011")
    images = lists["images.txt"]
    for file in ("image_class_labels.txt", "train_test_split.txt"):
        if lists[file].keys() != images.keys():
            raise archive.malformed(file, "expected one line for each image of images.txt")
    species = {str(number): number - 1 for number in range(1, len(expected) + 1)}
    try:
        classes = [species[lists["image_class_labels.txt"][image]] for image in images]
    except KeyError as unknown:
        raise archive.malformed("image_class_labels.txt", f"there is no class {unknown}") from None
    training = [lists["train_test_split.txt"][image] == "1" for image in images]
    return [np.array(list(images.values())), np.array(classes), np.array(training)]
