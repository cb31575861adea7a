"""Delimited text with a header line. Rows keep their line number for error messages."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from dhocl.core.errors import InputError

DELIMITERS = ",;\t"


class Row(NamedTuple):
    line: int  # in the file, counted from 1
    cells: dict[str, str]


class Sheet(NamedTuple):
    columns: tuple[str, ...]
    rows: list[Row]
    comments: tuple[str, ...]  # the lines above the header that start with #


class Scan(NamedTuple):
    """A sheet that is read row by row, so that its length does not matter."""

    columns: tuple[str, ...]
    rows: Iterator[Row]
    comments: tuple[str, ...]


def read(file: Path, delimiter: str | None, required: Sequence[str]) -> Sheet:
    """Read a file. Missing cells at the end of a row are empty, because editors strip trailing tabs.

    Without a delimiter, it is the one that makes most columns of the header, and columns are in lower case.
    """
    columns, found, comments = scan(file, delimiter, required)
    rows = list(found)
    if not rows:
        raise InputError(f"{file} is empty below its header: add a line for each entry")
    return Sheet(columns, rows, comments)


def scan(file: Path, delimiter: str | None, required: Sequence[str]) -> Scan:
    """Like `read`, row by row."""
    lines, above, comments = _lines(file, required), 0, []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            break
        above += 1
        comments += [line.rstrip("\n")] if line.strip() else []
    else:
        raise InputError(f"{file} is empty: expected a header line with the columns {', '.join(required)}")
    mark = delimiter or max(DELIMITERS, key=lambda mark: len(next(csv.reader([line], delimiter=mark))))
    records = _records(file, chain([line], lines), mark, above)
    columns = tuple(name if delimiter else name.lower() for name in next(records)[1])
    if lacking := [name for name in required if name not in columns]:
        raise InputError(
            f"{file} line {above + 1}: no column {lacking[0]!r}; the header must name {', '.join(required)}"
        )
    return Scan(columns, _rows(file, records, columns), tuple(comments))


def _rows(file: Path, records: Iterator[tuple[int, list[str]]], columns: tuple[str, ...]) -> Iterator[Row]:
    for line, cells in records:
        if len(cells) > len(columns) and any(cells[len(columns) :]):
            raise InputError(f"{file} line {line}: {len(cells)} cells, but the header has {len(columns)} columns")
        padded = cells + [""] * (len(columns) - len(cells))
        yield Row(line, dict(zip(columns, padded, strict=False)))


def _lines(file: Path, required: Sequence[str]) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8-sig") as text:  # spreadsheets write a byte order mark
            yield from text
    except FileNotFoundError:
        raise InputError(f"{file} is missing: create it with the columns {', '.join(required)}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8 text: save it with that encoding") from None
    except OSError as problem:
        raise InputError(f"{file} can not be read: {problem.strerror}") from None


def _records(file: Path, lines: Iterable[str], delimiter: str, above: int) -> Iterator[tuple[int, list[str]]]:
    """Line number and stripped cells of each line that is not blank. Tab-separated files do not quote."""
    tabbed = delimiter == "\t"
    reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if tabbed else csv.QUOTE_MINIMAL)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield above + reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as problem:
        raise InputError(f"{file} line {above + reader.line_num} can not be read: {problem}") from None
