"""Feature vectors from arrays and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.data.parquet import pyarrow


def read_vectors(source: Any, dim: int) -> Tensor:
    """(n, dim) float32, from an array, a tensor, or a file: `.npy`, or Parquet with numbers or one column of lists."""
    what = f"{source}" if isinstance(source, (str, Path)) else "the array"
    found = _load(Path(source)) if isinstance(source, (str, Path)) else source
    if isinstance(found, Tensor):
        found = found.detach().cpu().numpy()
    try:
        array = np.asarray(found, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(f"{what} does not hold numbers: give vectors of {dim} numbers each") from None
    if array.ndim != 2 or array.shape[1] != dim:
        raise InputError(f"{what} has shape {array.shape}: expected vectors of {dim} numbers each, (n, {dim})")
    if not len(array):
        raise InputError(f"{what} is empty: give at least one vector")
    if not np.isfinite(array).all():
        raise InputError(f"{what} holds NaN or infinite values")
    return torch.from_numpy(np.array(array))


def _load(path: Path) -> np.ndarray:
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _parquet(path)
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise InputError(f"{path} is neither a .npy array nor a .parquet file: save it with numpy.save") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} holds several arrays: save one with numpy.save")
    return array


def _parquet(path: Path) -> np.ndarray:
    arrow = pyarrow()
    try:
        table = arrow.parquet.read_table(path)
    except arrow.ArrowException:
        raise InputError(f"{path} is damaged or no Parquet file: write it again") from None
    lists = [name for name in table.column_names if hasattr(table.schema.field(name).type, "value_type")]
    if len(lists) == 1:
        rows = table.column(lists[0]).to_pylist()
        if len({len(row or ()) for row in rows}) > 1:
            raise InputError(f"{path}: the vectors of the column {lists[0]} have different lengths")
        return np.array(rows, dtype=np.float32)
    numbers = [name for name in table.column_names if arrow.types.is_floating(table.schema.field(name).type)]
    if lists or not numbers:
        raise InputError(f"{path}: expected one column of lists, or columns of floats")
    return np.stack([table.column(name).to_numpy() for name in numbers], 1)
