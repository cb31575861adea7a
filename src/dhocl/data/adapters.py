"""A `Source` from your own data: pairs, a torchvision-style data set, or one of the library `datasets`.

A run takes a function that returns one: `dhocl run --dataset mymodule:birds`, or `RunConfig(dataset=birds)`, with

    def birds(selection: Selection) -> Source:
        tree, _ = grow([("Corvidae", "jackdaw"), ("Corvidae", "rook"), ("Turdidae", "fieldfare")])
        return from_pairs(train, test, tree, ("family", "species"), image_size=selection.image_size or 96)

`dhocl.data.lineage.grow` makes a tree from lineages, `dhocl.data.treefile.read_tree` reads one from a file. If `test`
is empty, a part of the training images is held out. If any training label is above the finest level, the training
images are streamed in the given order with their own labels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.data.dataset import Fetch, Source, Table
from dhocl.data.files import Files
from dhocl.data.images import to_pixels, with_progress
from dhocl.data.lineage import disambiguate, grow

SIZE = 224
Pair = tuple[Any, tuple[str, str]]  # image, (name, level)


def from_pairs(
    train: Sequence[Pair],
    test: Sequence[Pair],
    tree: Taxonomy,
    levels: Sequence[str],
    *,
    image_size: int = SIZE,
    flip: bool = True,
    name: str = "pairs",
) -> Source:
    """A data set from sequences of (image, (name, level)).

    Args:
        train: pairs; an image is a path, a PIL image or an array. Paths are read on demand if they do not fit in
            memory.
        test: pairs for evaluation, or empty.
        tree: the true tree; it contains all labels.
        levels: names of the levels of the tree, coarsest first.
        image_size: images are scaled to squares of this side.
        flip: whether a mirrored image still shows its class.
        name: of the data set, in the record of a run.

    >>> tree, _ = grow([("bird", "robin"), ("bird", "wren"), ("fish", "cod")])
    >>> image = np.zeros((8, 8, 3), dtype=np.uint8)
    >>> train = [(image, ("robin", "species")), (image, ("wren", "species"))]
    >>> source = from_pairs(train, [(image, ("cod", "species"))], tree, ("kind", "species"), image_size=8)
    >>> [tree.labels[node].name for node in source.train.nodes], source.train.images(np.array([1])).shape
    (['robin', 'wren'], (1, 8, 8, 3))
    """

    def table(pairs: Sequence[Pair], what: str) -> Table:
        labels, paths = [], []
        for row in range(len(pairs)):
            image, label = pairs[row]
            labels.append(label)
            paths += [Path(image).absolute()] if isinstance(image, (str, Path)) else []
        nodes = _nodes(labels, tree, levels, what)
        if paths and len(paths) == len(labels):
            return Table(nodes, _files(paths, image_size, what))
        return Table(nodes, _fetch(lambda row: pairs[row][0], image_size, what))

    return _source(table(train, "train"), table(test, "test"), tree, levels, flip, name)


def from_torchvision(
    train: Any,
    test: Any,
    tree: Taxonomy,
    levels: Sequence[str],
    *,
    image_size: int = SIZE,
    flip: bool = True,
    name: str = "torchvision",
) -> Source:
    """A data set from two torchvision-style ones: `classes`, `len` and `[row]` -> (PIL image or array, class number).

    Their classes are those of the finest level. Do not use their transforms: images are scaled here. Labels are read
    from `targets` if there are any, without decoding images. For the other arguments see `from_pairs`.
    """

    def table(data: Any, what: str) -> Table:
        numbers = data.targets if hasattr(data, "targets") else [data[row][1] for row in range(len(data))]
        nodes = _nodes([(data.classes[int(number)], levels[-1]) for number in numbers], tree, levels, what)
        return Table(nodes, _fetch(lambda row: data[row][0], image_size, what))

    return _source(table(train, "train"), table(test, "test"), tree, levels, flip, name)


def from_huggingface(
    train: Any,
    test: Any,
    columns: Mapping[str, str],
    *,
    image: str = "image",
    image_size: int = SIZE,
    flip: bool = True,
    name: str = "huggingface",
) -> Source:
    """A data set from two of the library `datasets`. The tree is built from their label columns.

    Args:
        train: training data.
        test: test data, or empty.
        columns: level -> column, coarsest first, such as {"superclass": "coarse_label", "class": "fine_label"}. A
            column holds `ClassLabel` features or text; -1, None or an empty text is unknown. The label of a row is the
            finest known one. A name below several parents becomes "name (parent)".
        image: the column of the images.
        image_size: images are scaled to squares of this side.
        flip: whether a mirrored image still shows its class.
        name: of the data set, in the record of a run.
    """
    rows = _lineages(train, list(columns.values()), "train"), _lineages(test, list(columns.values()), "test")
    tree, nodes = grow(disambiguate([*rows[0], *rows[1]]))
    first, rest = np.split(nodes, [len(rows[0])])
    return _source(
        Table(first, _fetch(lambda row: train[row][image], image_size, "train")),
        Table(rest, _fetch(lambda row: test[row][image], image_size, "test")),
        tree,
        list(columns),
        flip,
        name,
    )


def _lineages(data: Any, columns: Sequence[str], what: str) -> list[tuple[str, ...]]:
    """The names of each row, coarsest first, empty where unknown."""
    if not len(data):
        return []
    if missing := [column for column in columns if column not in data.features]:
        raise InputError(f"{what} has no column {missing[0]!r}: choose one of {', '.join(data.features)}")
    names = [getattr(data.features[column], "names", None) for column in columns]

    def read(value: Any, known: Sequence[str] | None) -> str:
        if value is None or known is None:
            return str(value or "")
        return known[value] if value >= 0 else ""

    lineages = [
        tuple(read(value, known) for value, known in zip(values, names, strict=True))
        for values in zip(*(data[column] for column in columns), strict=True)
    ]
    for row, lineage in enumerate(lineages):
        if not any(lineage):
            raise InputError(f"{what}[{row}] has no label: fill in one of {', '.join(columns)}, or leave the row out")
    return lineages


def _nodes(labels: Iterable[tuple[str, str]], tree: Taxonomy, levels: Sequence[str], what: str) -> np.ndarray:
    """(n,) nodes of the tree"""
    nodes = []
    for row, label in enumerate(labels):
        if isinstance(label, str) or len(label) != 2:
            raise InputError(f"the label of {what}[{row}] is {label!r}: write it as (name, level)")
        name, level = label
        if level not in levels:
            raise InputError(f"the label of {what}[{row}] has the level {level!r}: choose one of {', '.join(levels)}")
        if (known := Label(name, list(levels).index(level))) not in tree:
            raise InputError(f"the label of {what}[{row}], {name!r}, is not in the tree at level {level!r}: add it")
        nodes.append(tree.id(known))
    return np.array(nodes, dtype=np.int64)


def _files(paths: Sequence[Path], size: int, what: str) -> Files:
    """Names are relative to the common folder, so that the stream hash does not depend on its location."""
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    names = [str(path.relative_to(folder)) for path in paths]
    return Files(folder, names, size, places=[f"{what}[{row}]" for row in range(len(paths))])


def _fetch(image: Callable[[int], Any], size: int, what: str) -> Fetch:
    def fetch(rows: np.ndarray) -> np.ndarray:
        shown = with_progress(rows.tolist(), len(rows), "reading images")
        return np.stack([to_pixels(image(row), size, f"{what}[{row}]") for row in shown])

    return fetch


def _source(train: Table, test: Table, tree: Taxonomy, levels: Sequence[str], flip: bool, name: str) -> Source:
    if not len(train.nodes):
        raise InputError("train is empty: give at least one image")
    if tree.levels[-1] >= len(levels):
        raise InputError(f"the tree has {tree.levels[-1] + 1} levels, but there are names for {len(levels)}: name all")
    coarse = any(tree.labels[node].level < len(levels) - 1 for node in train.nodes)
    return Source(name, tuple(levels), tree, train, test, flip, given=coarse)
