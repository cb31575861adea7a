"""Tables in Parquet files. A column may hold the images themselves, as Hugging Face's `datasets` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dhocl.core.errors import InputError
from dhocl.data.tabular import Row

SUFFIXES = frozenset({".parquet", ".pq"})


class Scan(NamedTuple):
    columns: tuple[str, ...]  # in lower case, without that of images
    rows: Iterator[Row]
    images: str | None  # the column that holds images, as it is written


def scan(file: Path, names: Sequence[str]) -> Scan:
    """A file that is read part by part. `names` are those that a column of images may have."""
    arrow = pyarrow()
    try:
        schema = arrow.parquet.read_schema(file)
    except (arrow.ArrowException, OSError):
        raise InputError(f"{file} is damaged or no Parquet file: write it again") from None
    held = [field.name for field in schema if field.name.lower() in names and _holds_images(arrow, field.type)]
    others = [name for name in schema.names if name not in held]
    return Scan(tuple(name.lower() for name in others), _rows(arrow, file, others), held[0] if held else None)


def _holds_images(arrow: Any, kind: Any) -> bool:
    kinds = arrow.types
    if kinds.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind))


def _rows(arrow: Any, file: Path, columns: list[str]) -> Iterator[Row]:
    line = 0
    with arrow.parquet.ParquetFile(file) as opened:
        for batch in opened.iter_batches(columns=columns):
            for values in batch.to_pylist():
                line += 1
                cells = {name.lower(): "" if value is None else str(value).strip() for name, value in values.items()}
                yield Row(line, cells)


def pyarrow() -> Any:
    """The module, with its module `parquet`."""
    try:
        import pyarrow as found
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise InputError("Parquet files need pyarrow: pip install 'dhocl[parquet]'") from None
    return found
