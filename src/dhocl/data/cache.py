"""Decoded images and other things worth keeping, on disk so that only the first run waits for them.

The cache is a convenience: what is damaged is made anew, and a folder that can not be written is done
without.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import numpy as np

FORMAT = 1  # counted up when what is stored under a key changes


def folder() -> Path:
    if chosen := os.environ.get("DHOCL_CACHE"):
        return Path(chosen)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "dhocl"
    return Path.home() / ".cache" / "dhocl"


def key(name: str, *determinants: object) -> str:
    """A name for people to recognise, and a hash of all that determines the content.

    >>> key("glyphs", 64) == key("glyphs", 64), key("glyphs", 64) == key("glyphs", 32)
    (True, False)
    """
    digest = hashlib.sha256(repr((FORMAT, determinants)).encode()).hexdigest()
    return f"{name}-{digest[:12]}"


def arrays(key: str, parts: Sequence[str], build: Callable[[], Sequence[np.ndarray]]) -> tuple[np.ndarray, ...]:
    """The arrays under a key, one a part, mapped from disk; built and stored if any of them is not there."""
    files = [folder() / f"{key}.{part}.npy" for part in parts]
    stored = [_load(file) for file in files]
    known = tuple(array for array in stored if array is not None)
    if len(known) == len(files):
        return known
    built = build()
    try:
        for file, array in zip(files, built, strict=True):
            write(file, partial(np.save, arr=array, allow_pickle=False))
    except OSError as problem:
        logging.getLogger(__name__).warning("not cached in %s (%s)", folder(), problem.strerror)
        return tuple(built)
    # mapped instead of held: the system may then drop what is not in use
    return tuple(array if mapped is None else mapped for array, mapped in zip(built, map(_load, files), strict=True))


def _load(file: Path) -> np.ndarray | None:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):  # not there, not an array, or shorter than its header says
        return None
    return array if isinstance(array, np.memmap) else None


def write(file: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Whole or not at all: written aside, brought to disk, then renamed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f"{file.name}.{uuid4().hex}.tmp")
    try:
        with aside.open("xb") as handle:
            fill(handle)
            handle.flush()
            os.fsync(handle.fileno())
        aside.replace(file)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
