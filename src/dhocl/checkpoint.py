"""Surviving a crash: the state of a run in one file, written whole or not at all.

The file is safetensors: tensors as they are, everything else as JSON in its header, nothing that could run code. Its
name carries a serial number and a hash of its content, so that the newest is known, damage shows, and an older one can
be taken instead.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from dhocl.errors import InputError

FORMAT = "4"  # of what learners put in; counted up when an older one can not be read any more
KEEP = 2  # the newest, and one before it should the newest be damaged


def save(folder: Path, state: dict[str, Any]) -> Path:
    """Write a nested dict of tensors and JSON values; afterwards only the newest few remain."""
    folder.mkdir(parents=True, exist_ok=True)
    serial = 1 + max((int(path.name[:9]) for path in _newest_first(folder)), default=0)
    tensors: dict[str, Tensor] = {}
    tree = _take_tensors(state, "", tensors)
    content = safetensors.torch.save(tensors, metadata={"format": FORMAT, "state": json.dumps(tree)})
    path = folder / f"{serial:09d}-{_hash(content)}.safetensors"
    write_atomically(path, content)
    for old in [*_newest_first(folder)[KEEP:], *folder.glob(".*.partial")]:  # the latter from a crash while writing
        old.unlink()
    return path


def load_newest(folder: Path) -> dict[str, Any] | None:
    """The state of the newest checkpoint that is whole, or None."""
    for path in _newest_first(folder):
        if path.stem.endswith(f"-{_hash(path.read_bytes())}"):
            return load(path)
        path.unlink()
        print(f"dhocl: {path} was damaged and is removed; going on from the one before", file=sys.stderr)
    return None


def load(path: Path) -> dict[str, Any]:
    with safetensors.safe_open(path, framework="pt") as file:
        if file.metadata().get("format") != FORMAT:
            raise InputError(f"{path} was written by another version of dhocl: go on with that one, or start anew")
        tree = json.loads(file.metadata()["state"])
        return _put_tensors(tree, file.get_tensor)  # type: ignore[no-any-return]


def write_atomically(path: Path, content: bytes) -> None:
    """All of it under its name, or nothing; on disk when this returns."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _take_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The value with each tensor replaced by a reference to its name in `tensors`."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().contiguous()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": {key: _take_tensors(item, f"{name}/{key}", tensors) for key, item in value.items()}}
    return {"json": value}


def _put_tensors(tree: dict[str, Any], get: Any) -> Any:
    match tree:
        case {"tensor": name}:
            return get(name)
        case {"dict": items}:
            return {key: _put_tensors(item, get) for key, item in items.items()}
        case {"json": value}:
            return value
    raise ValueError(f"unknown entry in a checkpoint: {tree}")


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.safetensors"), reverse=True)


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
