"""A disk cache of arrays, such as decoded images.

Damaged entries are rebuilt. If the folder can not be written, nothing is cached.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from dhocl.core.files import write_atomically

FORMAT = 1  # incremented when the content stored under a key changes


def folder() -> Path:
    if chosen := os.environ.get("DHOCL_CACHE"):
        return Path(chosen)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "dhocl"
    return Path.home() / ".cache" / "dhocl"


def key(name: str, *determinants: object) -> str:
    """A readable name and a hash of everything that determines the content.

    >>> key("glyphs", 64) == key("glyphs", 64), key("glyphs", 64) == key("glyphs", 32)
    (True, False)
    """
    digest = hashlib.sha256(repr((FORMAT, determinants)).encode()).hexdigest()
    return f"{name}-{digest[:12]}"


def arrays(key: str, parts: Sequence[str], build: Callable[[], Sequence[np.ndarray]]) -> tuple[np.ndarray, ...]:
    """The arrays of a key, one per part, memory-mapped. If any is missing, all are built and stored."""
    files = [folder() / f"{key}.{part}.npy" for part in parts]
    stored = [_load(file) for file in files]
    known = tuple(array for array in stored if array is not None)
    if len(known) == len(files):
        return known
    built = build()
    try:
        for file, array in zip(files, built, strict=True):
            write_atomically(file, partial(np.save, arr=array, allow_pickle=False))
    except OSError as problem:
        logging.getLogger(__name__).warning("not cached in %s (%s)", folder(), problem.strerror)
        return tuple(built)
    # memory-mapped, so that the system may drop pages that are not in use
    return tuple(array if mapped is None else mapped for array, mapped in zip(built, map(_load, files), strict=True))


def _load(file: Path) -> np.ndarray | None:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):  # missing, not an array, or truncated
        return None
    return array if isinstance(array, np.memmap) else None
