"""Your own images: a folder with `labels.csv`, `tree.tsv` and the images.

A label may be an inner node of the tree. If there is one, or if the rows have a time, the training rows are streamed in
their order, each labelled at its own level. If no row is marked as test, a part of the others is held out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath, PureWindowsPath
from typing import NamedTuple

import numpy as np

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.data import tabular
from dhocl.data.dataset import Selection, Source, Table
from dhocl.data.files import Files
from dhocl.data.tabular import Row
from dhocl.data.treefile import read_tree

SIZE = 224
SPREADSHEET = ("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S")  # dates with dots: the day comes first


class LabelledImage(NamedTuple):
    """One image of labels.csv."""

    place: str  # "FILE line N", for error messages
    name: str  # path below the folder
    node: int
    test: bool
    time: str


def read(selection: Selection) -> Source:
    if selection.data is None or not selection.data.is_dir():
        raise InputError(f"`data` must be a folder with labels.csv, tree.tsv and the images; got {selection.data}")
    tree, levels = read_tree(selection.data / "tree.tsv")
    file = selection.data / "labels.csv"
    sheet = tabular.read(file, None, ("path", "label", "level"))
    entries = [_entry(row, file, tree, levels) for row in sheet.rows]
    train, test = [e for e in entries if not e.test], [e for e in entries if e.test]
    if not train:
        raise InputError(f"{file} has no training rows: mark some rows split=train")
    timed = "time" in sheet.columns
    if timed:
        order = np.argsort(moments([(entry.place, entry.time) for entry in train]), kind="stable")
        train = [train[row] for row in order]
    coarse = any(tree.labels[entry.node].level < len(levels) - 1 for entry in train)
    size = selection.image_size or SIZE
    train_table, test_table = (_table(part, selection.data, size) for part in (train, test))
    return Source("folder", levels, tree, train_table, test_table, flip=True, given=timed or coarse)


def _entry(row: Row, file: Path, tree: Taxonomy, levels: tuple[str, ...]) -> LabelledImage:
    place, cells = f"{file} line {row.line}", row.cells
    level = find_level(cells["level"], levels)
    if level is None:
        raise InputError(f"{place}: unknown level {cells['level']!r}; the tree has {', '.join(levels)}")
    label = Label(cells["label"], levels.index(level))
    if label not in tree:
        raise InputError(f"{place}: {label.name!r} is not in tree.tsv at level {level!r}; add it there")
    path = slashed(cells["path"], file.parent)
    if path.is_absolute() or ".." in path.parts or not path.parts or PureWindowsPath(path).drive:
        raise InputError(f"{place}: the path {cells['path']!r} is not inside {file.parent}; give it relative to that")
    image = file.parent / path
    if not image.is_file():
        raise InputError(f"{place}: the image {cells['path']} is missing; correct the path or delete the line")
    if image.stat().st_size == 0:
        raise InputError(f"{place}: the image {cells['path']} is empty (0 bytes); replace it or delete the line")
    return LabelledImage(place, str(path), tree.id(label), is_test(row, place), cells.get("time", ""))


def find_level(name: str, levels: Sequence[str]) -> str | None:
    """The level of this name, in upper or lower case."""
    return next((level for level in levels if level.lower() == name.lower()), None)


def slashed(path: str, folder: Path) -> PurePath:
    """A path as it is written, or with the backslashes of Windows replaced if there is no such file."""
    written = PurePath(path)
    return written if "\\" not in path or (folder / written).is_file() else PurePath(path.replace("\\", "/"))


def is_test(row: Row, place: str) -> bool:
    split = row.cells.get("split", "").lower() or "train"
    if split not in ("train", "test"):
        raise InputError(f"{place}: unknown split {split!r}; write train or test")
    return split == "test"


def moments(times: Sequence[tuple[str, str]]) -> list[float]:
    """Times as numbers, from pairs of place and text. All are dates or all numbers, which can not be compared."""
    parsed = [_moment(place, time) for place, time in times]
    for (place, time), (kind, _) in zip(times, parsed, strict=True):
        if kind != parsed[0][0]:
            raise InputError(f"{place}: the time {time!r} is a {kind}, those before are not; use one kind")
    return [moment for _, moment in parsed]


def _moment(place: str, time: str) -> tuple[str, float]:
    try:
        number = float(time)
        if math.isfinite(number):
            return "number", number
    except ValueError:
        pass
    for form in (None, *SPREADSHEET):
        try:
            date = datetime.strptime(time, form) if form else datetime.fromisoformat(time)
        except ValueError:
            continue
        return "date", (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    hint = "; day and month can not be told apart, so format the column as yyyy-mm-dd" if "/" in time else ""
    raise InputError(f"{place}: the time {time!r} is neither a number nor an ISO date like 2024-05-31{hint}")


def _table(entries: list[LabelledImage], data: Path, size: int) -> Table:
    nodes = np.array([entry.node for entry in entries], dtype=np.int64)
    names, places = [entry.name for entry in entries], [entry.place for entry in entries]
    return Table(nodes, Files(data, names, size, places=places))
