"""Where an image is: a file, an address such as s3://photos/1.jpg, or a row of a Parquet file.

This module is imported without PyTorch, by processes that only decode.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from dhocl.core.errors import InputError

LARGEST = 256 * 2**20  # bytes of an image

ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)


class Remote(NamedTuple):
    """An image behind an address that fsspec can open."""

    address: str

    def __str__(self) -> str:
        return self.address

    def read(self) -> bytes:
        import fsspec

        with fsspec.open(self.address, "rb") as file:
            content: bytes = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise InputError(f"{self} is larger than {LARGEST // 2**20} MB: scale it down")
        return content


class Cell(NamedTuple):
    """An image in a column of a Parquet file."""

    file: Path
    column: str
    row: int  # counted from 0

    def __str__(self) -> str:
        return f"{self.file} row {self.row + 1}"

    def read(self) -> bytes:
        first, values = _group(self.file, self.column, self.row)
        value = values[self.row - first].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(content, bytes):
            raise InputError(f"{self} has no image: fill it in, or delete the row")
        return content


Place = Path | Remote | Cell


def remote(text: str) -> Remote | None:
    """None if the text is no address. InputError if it is of a kind that can not be opened.

    >>> remote("photos/1.jpg"), remote("file:///photos/1.jpg")
    (None, Remote(address='file:///photos/1.jpg'))
    """
    found = ADDRESS.match(text)
    if found is None:
        return None
    _check(found[1].lower())
    return Remote(text)


def fetched(source: Remote | Cell) -> bytes:
    """The content of an image file. What prevents it is an InputError in one line, or FileNotFoundError."""
    try:
        return source.read()
    except (InputError, FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # each file system has errors of its own
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{source} can not be read: {reason}") from None


@lru_cache
def _check(kind: str) -> None:
    import fsspec

    try:
        fsspec.get_filesystem_class(kind)
    except ImportError as error:  # says what to install
        raise InputError(f"addresses with {kind}:// can not be opened: {error}") from None
    except ValueError:
        known = "s3://, gs:// or https://"
        raise InputError(f"addresses with {kind}:// are not known: use {known}, or copy the images") from None


def _group(file: Path, column: str, row: int) -> tuple[int, Any]:
    """The group of rows that this one is in: the number of its first row, and the values of a column."""
    starts = _starts(file)
    group = bisect_right(starts, row) - 1
    return starts[group], _values(file, column, group)


@lru_cache(maxsize=256)
def _starts(file: Path) -> list[int]:
    """The first row of each group."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as opened:
        sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
    return list(accumulate(sizes, initial=0))[:-1]


@lru_cache(maxsize=2)  # rows are read in order
def _values(file: Path, column: str, group: int) -> Any:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as opened:
        return opened.read_row_group(group, [column]).column(column)
