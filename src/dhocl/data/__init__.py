"""Data sets by name. To add one: write a reader that gives a `Source`, and name it here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dhocl.data import aircraft, cifar100, cub200, darwin_core, folder, glyphs, imagenet_h, inaturalist
from dhocl.data.dataset import Dataset, Selection, Source, Split, select
from dhocl.errors import InputError

__all__ = ["DATASETS", "Dataset", "DatasetInfo", "Selection", "Source", "Split", "check", "load"]


class DatasetInfo(NamedTuple):
    read: Callable[[Selection], Source]
    summary: str
    levels: tuple[str, ...]  # rank names, coarsest first; empty if only the data tell


DATASETS: dict[str, DatasetInfo] = {
    "glyphs": DatasetInfo(
        glyphs.read, "pictures of Unicode characters, made on the spot; nothing to download", glyphs.LEVELS
    ),
    "cifar100": DatasetInfo(
        cifar100.read, "CIFAR-100, 100 classes of small photographs; needs --data", cifar100.LEVELS
    ),
    "cub200": DatasetInfo(cub200.read, "CUB-200-2011, 200 species of birds; needs --data", cub200.LEVELS),
    "cub200_genus": DatasetInfo(
        partial(cub200.read, genus=True),
        "CUB-200-2011 with the genus as a rank; needs --data",
        cub200.LEVELS_GENUS,
    ),
    "aircraft": DatasetInfo(aircraft.read, "FGVC-Aircraft, 100 variants of aircraft; needs --data", aircraft.LEVELS),
    "inaturalist2018": DatasetInfo(
        partial(inaturalist.read, year=2018), "iNaturalist 2018, 8,142 species; needs --data", inaturalist.LEVELS
    ),
    "inaturalist2019": DatasetInfo(
        partial(inaturalist.read, year=2019), "iNaturalist 2019, 1,010 species; needs --data", inaturalist.LEVELS
    ),
    "imagenet_h": DatasetInfo(
        imagenet_h.read, "ImageNet under WordNet's tree, padded at random by the seed; needs --data", ()
    ),
    "imagenet_h_fixed": DatasetInfo(
        partial(imagenet_h.read, random=False),
        "the same, padded by repeating the parents of the leaves; needs --data",
        (),
    ),
    "darwin_core": DatasetInfo(
        darwin_core.read,
        "occurrences in Darwin Core, such as a GBIF download, with their photographs; needs --data",
        (),
    ),
    "folder": DatasetInfo(folder.read, "your own images: --data holds labels.csv, tree.tsv and the images", ()),
}


def check(name: str, selection: Selection) -> Source:
    """The data set before any image is decoded; an error where it is not there."""
    if name not in DATASETS:
        raise InputError(f"unknown data set {name!r}: choose one of {', '.join(DATASETS)}")
    if selection.image_size is not None and selection.image_size < 1:
        raise InputError(f"images can not be {selection.image_size} pixels wide: give a positive number")
    return DATASETS[name].read(selection)


def load(name: str, selection: Selection) -> Dataset:
    """The part of a data set that a run uses, decoded if it fits in memory."""
    return select(check(name, selection), selection)
