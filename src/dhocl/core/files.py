"""Atomic writes and folder locks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from dhocl.core.errors import InputError


def write_atomically(path: Path, content: bytes | Callable[[BinaryIO], object], make_folder: bool = True) -> None:
    """Write all of `content` or nothing: bytes, or a function that writes to a file.

    The file is on disk when this returns. Several processes may write the same file at once. Without `make_folder`, a
    missing folder is an OSError.
    """
    if make_folder:
        path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content) if isinstance(content, bytes) else content(file)
        put_in_place(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def put_in_place(partial: Path, path: Path) -> None:
    """Rename a file that is complete. It is on disk when this returns."""
    _sync(partial)
    partial.replace(path)
    _sync(path.parent)  # a rename survives a power cut only once the folder is synced too


class InUseError(InputError):
    """Another process has the lock."""


class Lock:
    """A lock on a file, created if missing. A second process gets an InUseError at once. A crash releases the lock."""

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        self._path = path
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, mode), "rb")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise InUseError(f"{path.parent} is in use by another process: stop that one first") from None

    @property
    def in_place(self) -> bool:
        """Whether the path still leads to the locked file, which may have been moved, deleted or replaced."""
        return is_same(self._path, os.fstat(self._file.fileno()))

    def close(self) -> None:
        self._file.close()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, created if missing, by a file in it (see `Lock`)."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(Lock(folder / "lock")):
        yield


def make_private(folder: Path) -> None:
    """Let only the owner read a folder and all in it. Files of another owner stay as they are."""
    for path in (folder, *folder.rglob("*")):
        with suppress(PermissionError, FileNotFoundError):
            if not path.is_symlink():
                path.chmod(0o700 if path.is_dir() else 0o600)


def is_same(path: Path, known: os.stat_result) -> bool:
    """Whether a path leads to this file or folder: `known` is what `os.stat` returned for it."""
    try:
        return os.path.samestat(os.stat(path), known)
    except OSError:
        return False


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
