"""Delimited text with a header line. Rows keep their line number for error messages."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dhocl.core.errors import InputError


class Row(NamedTuple):
    line: int  # in the file, counted from 1
    cells: dict[str, str]


class Sheet(NamedTuple):
    columns: tuple[str, ...]
    rows: list[Row]
    comments: tuple[str, ...]  # the lines above the header that start with #


def read(file: Path, delimiter: str, required: Sequence[str]) -> Sheet:
    """Read a file. Missing cells at the end of a row are empty, because editors strip trailing tabs."""
    lines = _text(file, required).splitlines()
    above = 0
    while above < len(lines) and (not lines[above].strip() or lines[above].startswith("#")):
        above += 1
    if above == len(lines):
        raise InputError(f"{file} is empty: expected a header line with the columns {', '.join(required)}")
    records = _records(file, lines[above:], delimiter, above)
    columns = tuple(next(records)[1])
    if lacking := [name for name in required if name not in columns]:
        raise InputError(
            f"{file} line {above + 1}: no column {lacking[0]!r}; the header must name {', '.join(required)}"
        )
    rows = []
    for line, cells in records:
        if len(cells) > len(columns):
            raise InputError(f"{file} line {line}: {len(cells)} cells, but the header has {len(columns)} columns")
        padded = cells + [""] * (len(columns) - len(cells))
        rows.append(Row(line, dict(zip(columns, padded, strict=True))))
    if not rows:
        raise InputError(f"{file} is empty below its header: add a line for each entry")
    return Sheet(columns, rows, tuple(line for line in lines[:above] if line.strip()))


def _text(file: Path, required: Sequence[str]) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")  # spreadsheets write a byte order mark
    except FileNotFoundError:
        raise InputError(f"{file} is missing: create it with the columns {', '.join(required)}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8 text: save it with that encoding") from None
    except OSError as problem:
        raise InputError(f"{file} can not be read: {problem.strerror}") from None


def _records(file: Path, lines: list[str], delimiter: str, above: int) -> Iterator[tuple[int, list[str]]]:
    """Line number and stripped cells of each line that is not blank. Tab-separated files do not quote."""
    tabbed = delimiter == "\t"
    reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if tabbed else csv.QUOTE_MINIMAL)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield above + reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as problem:
        raise InputError(f"{file} line {above + reader.line_num} can not be read: {problem}") from None
