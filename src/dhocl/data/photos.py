"""Images by what a user gives: files, addresses, folders, patterns, or a table with a column of paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from glob import has_magic, iglob
from itertools import islice
from pathlib import Path

from dhocl.core.errors import InputError
from dhocl.core.places import Remote, remote
from dhocl.data import tabular
from dhocl.data.folder import slashed

SUFFIXES = frozenset([".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".heic", ".heif", ".bmp", ".gif"])
TABLES = frozenset({".csv", ".tsv", ".txt"})
PATHS = ("path", "file", "filename", "image", "photo")  # names of a column of paths
SORTED = 100_000  # more files are listed in the order of the file system, so that their names need not be kept


def is_image(path: Path) -> bool:
    """By its name. Hidden files, such as those that macOS leaves on other disks, are none."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


class Photos:
    """The paths of images, in a fixed order. They may be iterated several times, and are not kept in memory."""

    def __init__(self, given: Sequence[str | Path]) -> None:
        self._given = [str(each) for each in given]

    def __iter__(self) -> Iterator[Path | Remote]:
        for each in self._given:
            yield from _paths(each)

    def count(self) -> int:
        return sum(1 for _ in self)


def _paths(given: str) -> Iterator[Path | Remote]:
    path = Path(given)
    if address := remote(given):
        yield address
    elif path.is_dir():
        yield from _some(_sorted(lambda: _walk(path)), f"{path} has no image, such as .jpg, .png, .tif or .heic")
    elif path.is_file():
        yield from _table(path) if path.suffix.lower() in TABLES else (path,)
    elif has_magic(given):
        found = _sorted(lambda: (Path(name) for name in iglob(given, recursive=True) if is_image(Path(name))))
        yield from _some(found, f"no image has a name like {given}")
    else:
        raise InputError(f"there is no file or folder {given}")


def _some(paths: Iterator[Path], otherwise: str) -> Iterator[Path]:
    empty = True
    for path in paths:
        empty = False
        yield path
    if empty:
        raise InputError(otherwise)


def _sorted(paths: Callable[[], Iterator[Path]]) -> Iterator[Path]:
    first = list(islice(paths(), SORTED + 1))
    return iter(sorted(first)) if len(first) <= SORTED else paths()


def _walk(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = folder / entry.name
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from _walk(path)
            elif is_image(path):
                yield path


def _table(file: Path) -> Iterator[Path | Remote]:
    columns, rows, _ = tabular.scan(file, None, ())
    column = path_column(columns, file)
    for row in rows:
        if not row.cells[column]:
            raise InputError(f"{file} line {row.line}: the {column} is empty; fill it in or delete the line")
        yield listed(row.cells[column], file.parent)[0]


def listed(text: str, folder: Path) -> tuple[Path | Remote, str]:
    """What a table in this folder calls a path, and its name: an address, or a path relative to the folder."""
    if address := remote(text):
        return address, text
    written = slashed(text, folder)
    return folder / written, str(written)


def path_column(columns: Sequence[str], file: Path) -> str:
    """The column that holds the paths."""
    for name in PATHS:
        if name in columns:
            return name
    raise InputError(f"{file}: no column of paths; name it path (the columns are {', '.join(columns)})")
