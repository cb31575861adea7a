"""Data sets by name: built in, `module:function`, or an entry point of a package.

A data set is a function that takes a `Selection` and returns a `Source`. `dhocl.data.adapters` makes a `Source` from
pairs, from a torchvision-style data set, or from a data set of the Hugging Face library `datasets`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dhocl.core import outside
from dhocl.core.errors import InputError
from dhocl.data import aircraft, cifar100, cub200, darwin_core, folder, glyphs, imagenet_h, inaturalist
from dhocl.data.dataset import Dataset, Selection, Source, Split, select

__all__ = ["DATASETS", "Dataset", "DatasetInfo", "Selection", "Source", "Split", "check", "find_dataset", "load"]

Reader = Callable[[Selection], Source]


class DatasetInfo(NamedTuple):
    read: Reader
    summary: str
    levels: tuple[str, ...]  # rank names, coarsest first; empty if they depend on the data
    title: str = ""  # its own name; empty for a reader of a user's own data


DATASETS: dict[str, DatasetInfo] = {
    "glyphs": DatasetInfo(
        glyphs.read, "rendered Unicode characters; generated locally, no download", glyphs.LEVELS, "Glyphs"
    ),
    "cifar100": DatasetInfo(
        cifar100.read, "CIFAR-100, 100 classes of small photographs; needs --data", cifar100.LEVELS, "CIFAR-100"
    ),
    "cub200": DatasetInfo(
        cub200.read, "CUB-200-2011, 200 species of birds; needs --data", cub200.LEVELS, "CUB-200-2011"
    ),
    "cub200_genus": DatasetInfo(
        partial(cub200.read, genus=True),
        "CUB-200-2011 with the genus as a rank; needs --data",
        cub200.LEVELS_GENUS,
        "CUB-200-2011 with genera",
    ),
    "aircraft": DatasetInfo(
        aircraft.read, "FGVC-Aircraft, 100 variants of aircraft; needs --data", aircraft.LEVELS, "FGVC-Aircraft"
    ),
    "inaturalist2018": DatasetInfo(
        partial(inaturalist.read, year=2018),
        "iNaturalist 2018, 8,142 species; needs --data",
        inaturalist.LEVELS,
        "iNaturalist 2018",
    ),
    "inaturalist2019": DatasetInfo(
        partial(inaturalist.read, year=2019),
        "iNaturalist 2019, 1,010 species; needs --data",
        inaturalist.LEVELS,
        "iNaturalist 2019",
    ),
    "imagenet_h": DatasetInfo(
        imagenet_h.read,
        "ImageNet with the WordNet tree, padded at random levels (by seed); needs --data",
        (),
        "ImageNet-H",
    ),
    "imagenet_h_fixed": DatasetInfo(
        partial(imagenet_h.read, random=False),
        "ImageNet with the WordNet tree, padded by repeating the parents of leaves; needs --data",
        (),
        "ImageNet-H, fixed levels",
    ),
    "darwin_core": DatasetInfo(
        darwin_core.read,
        "Darwin Core occurrences with photographs, such as a GBIF download; needs --data",
        (),
    ),
    "folder": DatasetInfo(folder.read, "your own images: --data holds labels.csv, tree.tsv and the images", ()),
}


def find_dataset(dataset: str | Reader) -> DatasetInfo:
    """The data set of a name: one of DATASETS, `module:function`, or an entry point of an installed package."""
    if isinstance(dataset, str) and dataset in DATASETS:
        return DATASETS[dataset]
    read = outside.find(dataset, "data set", DATASETS) if isinstance(dataset, str) else dataset
    if not callable(read):
        raise InputError(f"{dataset} is not a data set: expected a function that takes a Selection, not {read!r}")
    return DatasetInfo(read, outside.first_line(read), ())


def check(dataset: str | Reader, selection: Selection) -> Source:
    """Open a data set without decoding images. InputError if its files are missing or malformed."""
    if selection.image_size is not None and selection.image_size < 1:
        raise InputError(f"image_size={selection.image_size}: at least 1")
    source = find_dataset(dataset).read(selection)
    if not isinstance(source, Source):
        raise InputError(f"{dataset} returned {type(source).__name__}, not a Source: see dhocl.data.adapters")
    return source


def load(dataset: str | Reader, selection: Selection) -> Dataset:
    """Open a data set and select the part that a run uses. Images are decoded if they fit in memory.

    >>> data = load("glyphs", Selection(samples=500, test_samples=100, image_size=32))
    >>> data.levels, tuple(data.train.images.shape), len(data.test)
    (('script', 'base', 'character'), (500, 3, 32, 32), 100)
    """
    return select(check(dataset, selection), selection)
