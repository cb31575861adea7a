"""Checkpoints: nested dicts of tensors and JSON values, one file each.

A file is safetensors with the JSON values in its header, so loading it can not run code. Its name holds a serial number
and a hash of its content: the newest file is known, and a damaged one is detected and skipped.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import safetensors
import safetensors.torch
from torch import Tensor

from dhocl.core.errors import InputError, usable
from dhocl.core.files import put_in_place

FORMAT = "6"  # incremented when the layout of a state changes
READABLE = ("5", FORMAT)  # 5: without the samples that can be forgotten
NAME = re.compile(r"[0-9]{9}-[0-9a-f]{16}\.safetensors")
ADVICE = "restore it from a backup, or start in another folder"
KEEP = 2  # the newest, and a fallback in case it is damaged


def save(folder: Path, state: dict[str, Any], make_folder: bool = True) -> Path:
    """Write a nested dict of tensors and JSON values, and delete all but the newest `KEEP` checkpoints."""
    serial = 1 + max((int(path.name[:9]) for path in newest_first(folder)), default=0)
    tensors: dict[str, Tensor] = {}
    tree = _take_tensors(state, "", tensors)
    if make_folder:
        folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{uuid4().hex}.partial"
    try:
        _write(partial, tensors, {"format": FORMAT, "state": json.dumps(tree)})
        path = folder / f"{serial:09d}-{_file_hash(partial)}.safetensors"
        put_in_place(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    for old in [*newest_first(folder)[KEEP:], *folder.glob(".*.partial")]:  # .partial: a crash while writing
        old.unlink()
    return path


def count(folder: Path) -> int:
    """Number of checkpoints, without damaged ones."""
    return len(newest_first(folder))


def load_newest(folder: Path) -> dict[str, Any] | None:
    """The state of the newest intact checkpoint; None if the folder never had one.

    A damaged file is renamed to `.damaged`, and the one before it is used. InputError if all are damaged.
    """
    for path in newest_first(folder):
        try:
            if not path.is_dir() and path.stem.endswith(f"-{_hash(path.read_bytes())}"):
                return load(path)
        except FileNotFoundError:  # the process that writes the folder has just replaced it
            return load_newest(folder)
        path.rename(path.with_suffix(".damaged"))
        logging.getLogger(__name__).warning("%s is damaged; trying the checkpoint before it", path)
    if damaged := sorted(folder.glob("*.damaged")):
        raise InputError(f"{folder} has no intact checkpoint: restore {damaged[-1].name}, or start in another folder")
    return None


def newest_first(folder: Path) -> list[Path]:
    """All that look like checkpoints, by their names. They may be damaged."""
    return sorted((path for path in folder.glob("*.safetensors") if NAME.fullmatch(path.name)), reverse=True)


def is_intact(path: Path) -> bool:
    """Whether the content of a checkpoint has the hash of its name."""
    return path.stem.endswith(f"-{_file_hash(path)}")


def newest_intact(folder: Path) -> tuple[Path, bytes] | None:
    """Path and content of the newest intact checkpoint; None if there is none. Nothing is renamed.

    FileNotFoundError if the process that writes the folder has just replaced it.
    """
    for path in newest_first(folder):
        content = b"" if path.is_dir() else path.read_bytes()
        if path.stem.endswith(f"-{_hash(content)}"):
            return path, content
    return None


def load(path: Path) -> dict[str, Any]:
    with usable(path, ADVICE), safetensors.safe_open(path, framework="pt") as file:
        if file.metadata().get("format") not in READABLE:
            raise InputError(f"{path} was written by another version of dhocl: use that version, or start again")
        tree = json.loads(file.metadata()["state"])
        return _put_tensors(tree, file.get_tensor)  # type: ignore[no-any-return]


def _write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Without a copy of the tensors in memory: the state of a service may be a large part of it."""
    try:
        safetensors.torch.save_file(tensors, path, metadata)
    except safetensors.SafetensorError as error:  # such as a full disk, whose number is in the text alone
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise OSError(str(error)) from error
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


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


def _file_hash(path: Path) -> str:
    """Of the content, which is read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, _new_hash).hexdigest()


def _hash(content: bytes) -> str:
    found = _new_hash()
    found.update(content)
    return found.hexdigest()


def _new_hash() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=8)
