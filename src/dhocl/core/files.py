"""Atomic writes and folder locks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from dhocl.core.errors import InputError


def write_atomically(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write all of `content` or nothing: bytes, or a function that writes to a file. Makes the folder if needed.

    The file is on disk when this returns. Several processes may write the same file at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content) if isinstance(content, bytes) else content(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, created if missing. A second process gets an InputError at once. A crash releases the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder} is in use by another process: stop that one first") from None
        yield


def _sync_folder(folder: Path) -> None:
    """A rename survives a power cut only once the folder is synced too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
