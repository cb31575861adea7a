"""Photographs with labels: a table, folders named by class, or a Darwin Core archive.

| data                                          | label of a photograph                                    |
|-----------------------------------------------|----------------------------------------------------------|
| `labels.csv` or a table: path, label, level   | as it is written                                         |
| a table: path, and a column for each level    | the finest name of the row; the others are its ancestors |
| `*.parquet`: such a table, or with the images | as in a table                                            |
| `species/robin/1.jpg`: a level, a class       | the class                                                |
| `Corvidae/Corvus/1.jpg`: as deep as the levels| the innermost folder; the others are its ancestors       |
| `robin/1.jpg`                                 | a class of the finest level                              |
| a Darwin Core archive of occurrences          | the accepted name                                        |

A path may be an address, such as s3://photos/1.jpg. A `tree.tsv` beside a table tells where its classes are. Images are
not opened here.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dhocl.core.errors import InputError
from dhocl.core.joining import join
from dhocl.core.places import Cell, Place
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.data import darwin_core, parquet, tabular
from dhocl.data.dataset import Selection
from dhocl.data.files import Files
from dhocl.data.folder import find_level, is_test, moments
from dhocl.data.photos import PATHS, is_image, listed, path_column
from dhocl.data.treefile import read_tree

logger = logging.getLogger(__name__)

LABELS, TREE, ARCHIVE = "labels.csv", "tree.tsv", "meta.xml"
ONLY_LEVEL = "class"  # of folders that are one deep, if no levels are given


class Photo(NamedTuple):
    place: str  # "FILE line N", for messages; or the path
    path: Place
    name: str  # path below the data
    label: Label
    lineage: tuple[str, ...]  # name at each level, empty where unknown
    test: bool


class Album(NamedTuple):
    levels: tuple[str, ...]  # coarsest first
    photos: list[Photo]
    tree: Taxonomy  # what the data tells about parents
    stated: frozenset[Label]  # classes that `tree.tsv` lists
    ordered: bool  # by time


class _Entry(NamedTuple):
    place: str
    path: Place
    name: str
    names: Mapping[str, str]  # level -> name
    test: bool = False
    time: str | None = None


def open_album(data: Path, levels: Sequence[str] = ()) -> Album:
    """Find the photographs and their labels. `levels` are those of the model; if empty, the data must tell."""
    if files := _tables(data):
        entries = [entry for file in files for entry in _table(file, levels)]
        return _album(entries, levels, data, files[0].parent / TREE)
    if not data.is_dir():
        raise InputError(f"`data` {data}: no such file or folder; give a table, or a folder of photographs")
    if (data / ARCHIVE).is_file() or any(data.glob("*.zip")) or any(data.glob("occurrence*.*")):
        return _archive(data, levels)
    return _album(list(_folders(data, levels)), levels, data, data / TREE)


def _tables(data: Path) -> list[Path]:
    if data.is_file():
        return [data]
    if (data / LABELS).is_file():
        return [data / LABELS]
    return sorted(path for path in data.glob("*") if path.suffix.lower() in parquet.SUFFIXES)


def _table(file: Path, levels: Sequence[str]) -> Iterator[_Entry]:
    images: str | None = None
    image: Place
    if file.suffix.lower() in parquet.SUFFIXES:
        columns, rows, images = parquet.scan(file, PATHS)
    else:
        columns, rows, _ = tabular.scan(file, None, ())
    path = path_column(columns, file) if images is None else ""
    ranks = [column for column in columns if find_level(column, levels or darwin_core.RANKS)]
    tall = {"label", "level"} <= set(columns)
    if not (tall or ranks):
        expected = ", ".join(levels or ("family", "genus", "species"))
        raise InputError(f"{file}: no labels; add the columns label and level, or one for each level ({expected})")
    for row in rows:
        place, cells = f"{file} line {row.line}", row.cells
        names = {cells["level"]: cells["label"]} if tall else {rank: cells[rank] for rank in ranks if cells[rank]}
        if not all(names.values()) or not any(names):
            raise InputError(f"{place}: no label; fill it in or delete the line")
        if tall and levels and find_level(cells["level"], levels) is None:
            raise InputError(f"{place}: unknown level {cells['level']!r}; known are {', '.join(levels)}")
        if images is not None:
            image, name = Cell(file, images, row.line - 1), f"{file.name} row {row.line}"
        else:
            image, name = listed(cells[path], file.parent)
        yield _Entry(place, image, name, names, is_test(row, place), cells.get("time"))


def _folders(data: Path, levels: Sequence[str]) -> Iterator[_Entry]:
    found = sorted(path.relative_to(data) for path in data.rglob("*") if is_image(path))
    found = [path for path in found if path.parent.parts]
    if not found:
        raise InputError(
            f"{data} has neither {LABELS} nor folders of photographs named by class, such as species/robin"
        )
    deepest = max(len(path.parent.parts) for path in found)
    by_level = deepest > 1 and all(find_level(path.parts[0], levels or darwin_core.RANKS) for path in found)
    for path in found:
        folders = path.parent.parts
        if by_level and len(folders) > 1:
            names = {folders[0]: folders[1]}
        elif deepest == 1:
            names = {levels[-1] if levels else ONLY_LEVEL: folders[0]}
        elif deepest == len(levels):
            names = dict(zip(levels, folders, strict=False))
        else:
            known = f"the levels are {', '.join(levels)}" if levels else "`levels` tells how many there are"
            raise InputError(
                f"{data / path}: folders are {deepest} deep, but {known}; use LEVEL/CLASS, CLASS, or a folder per level"
            )
        yield _Entry(str(data / path), data / path, str(path), names)


def _archive(data: Path, levels: Sequence[str]) -> Album:
    source = darwin_core.read(Selection(data))
    files, tree = source.train.images, source.tree
    assert isinstance(files, Files)
    entries = []
    for row, node in enumerate(source.train.nodes.tolist()):
        labels = [tree.labels[above] for above in reversed(tree.lineage(node))]
        names = {source.levels[label.level]: label.name for label in labels}
        entries.append(_Entry(files.places[row], files.path(row), files.names[row], names))
    return _album(entries, levels or source.levels, data)._replace(ordered=True)


def _album(entries: list[_Entry], levels: Sequence[str], data: Path, tree_file: Path | None = None) -> Album:
    if not entries:
        raise InputError(f"{data} lists no photograph: add a line for each")
    stated = read_tree(tree_file) if tree_file and tree_file.is_file() else None
    ranks = tuple(levels) or (stated[1] if stated else _ordered({rank for e in entries for rank in e.names}, data))
    if stated and stated[1] != ranks:
        raise InputError(f"{tree_file} has the levels {', '.join(stated[1])}: expected {', '.join(ranks)}")
    timed = all(entry.time is not None for entry in entries)
    if timed:
        order = np.argsort(moments([(entry.place, entry.time or "") for entry in entries]), kind="stable")
        entries = [entries[row] for row in order]
    photos = []
    for entry in entries:
        known = {rank: name for rank, name in entry.names.items() if find_level(rank, ranks)}
        lineage = _lineage(known, ranks)
        if any(lineage):
            finest = max(level for level, name in enumerate(lineage) if name)
            label = Label(lineage[finest], finest)
            photos.append(Photo(entry.place, entry.path, entry.name, label, lineage, entry.test))
    if len(photos) < len(entries):
        logger.warning("%d photographs have no name at a level of the model: skipped", len(entries) - len(photos))
    tree = _tree(photos, ranks)
    if stated:
        tree = join(stated[0], tree)[0]
    return Album(ranks, photos, tree, frozenset(stated[0] if stated else ()), timed)


def _lineage(names: Mapping[str, str], levels: Sequence[str]) -> tuple[str, ...]:
    by_level = {rank.lower(): name for rank, name in names.items()}
    return tuple(by_level.get(level.lower(), "") for level in levels)


def _ordered(ranks: Iterable[str], data: Path) -> tuple[str, ...]:
    """Levels that are known ranks, coarsest first."""
    named = {rank.lower() for rank in ranks}
    if named - {*darwin_core.RANKS}:
        raise InputError(
            f"the order of the levels {', '.join(sorted(named))} is unknown in {data}: give `levels`, coarsest first"
        )
    return tuple(sorted(named, key=darwin_core.RANKS.index))


def _tree(photos: Sequence[Photo], levels: Sequence[str]) -> Taxonomy:
    """The tree of all lineages. Of several parents on one level the most frequent is used; the others are logged."""
    parents: defaultdict[Label, Counter[Label]] = defaultdict(Counter)
    places: dict[tuple[Label, Label], str] = {}
    tree = Taxonomy()
    for photo in photos:
        labels = [Label(name, level) for level, name in enumerate(photo.lineage) if name]
        for label in labels:
            tree.add(label)
        for parent, child in pairwise(labels):
            parents[child][parent] += 1
            places.setdefault((child, parent), photo.place)
    for child, counts in parents.items():
        finest = max(parent.level for parent in counts)
        (best, times), *others = Counter({p: n for p, n in counts.items() if p.level == finest}).most_common()
        tree.link(tree.id(child), tree.id(best))
        for other, _ in others:
            logger.warning(
                "%s: is %s (%s) below %s, or below %s as in %d other rows? The latter is used",
                places[child, other],
                child.name,
                levels[child.level],
                other.name,
                best.name,
                times,
            )
    return tree
