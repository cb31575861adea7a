"""Copy the folder of a model, also while a service learns in it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from dhocl.core import checkpoint
from dhocl.core.errors import InputError
from dhocl.core.files import make_private, write_atomically
from dhocl.service.journal import Journal

ATTEMPTS = 10
PAGES = 1000  # of SQLite, between two reports of progress

Report = Callable[[int, int], object]  # called with pages copied and pages in all


def backup(model: Path, into: Path, report: Report = lambda done, whole: None) -> int:
    """Copy the newest intact checkpoint of `model`, and the journal, if it has one, into a new or empty folder.

    The copy has every entry that was accepted before the call. Returns the number of its newest entry.
    """
    if not (model / "checkpoints").is_dir():
        raise InputError(f"{model} has no model: give the folder of a service, a run or a saved classifier")
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise InputError(f"{into} is not empty: choose a new folder for the copy")
    into.mkdir(parents=True, exist_ok=True, mode=0o700)
    make_private(into)
    try:
        for _ in range(ATTEMPTS):
            try:
                newest = _attempt(model, into, report)
            except FileNotFoundError:  # the service has just replaced the checkpoint
                newest = None
            if newest is not None:
                make_private(into)
                return newest
            _clear(into)
    except BaseException:
        _clear(into)
        raise
    raise InputError(f"{model} changes faster than it can be copied: raise --checkpoint-every of the service")


def _attempt(model: Path, into: Path, report: Report) -> int | None:
    """Copy once. None if the service has meanwhile pruned entries that follow the copied checkpoint.

    The checkpoint is read before the journal, so that the journal has the entries after it. It is written last, so that
    an incomplete copy can not be opened.
    """
    found = checkpoint.newest_intact(model / "checkpoints")
    if found is None:
        raise InputError(f"{model} has no intact checkpoint: restore one, or use an earlier backup")
    path, content = found
    applied = int(checkpoint.load(path).get("service", {}).get("applied", 0))
    newest = 0
    if (model / "journal.sqlite").exists():
        _copy(model / "journal.sqlite", into / "journal.sqlite", report)
        with closing(Journal(into / "journal.sqlite")) as journal:
            if not journal.whole(applied):
                return None
            newest = journal.last
    elif applied:
        raise InputError(f"{model} has no journal.sqlite, which its checkpoint needs: restore it")
    write_atomically(into / "checkpoints" / path.name, content)
    return newest


def _copy(source: Path, target: Path, report: Report) -> None:
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(source))}?mode=rw", uri=True, isolation_level=None)) as given,
            closing(sqlite3.connect(target)) as copy,
        ):
            given.execute("BEGIN")  # a snapshot: else each write of the service would start the copy anew
            given.execute("SELECT count(*) FROM sqlite_master").fetchone()
            given.backup(copy, pages=PAGES, progress=lambda _, left, whole: report(whole - left, whole))
    except sqlite3.Error as error:
        raise InputError(f"{source} can not be copied to {target} ({error}): free disk space, or restore it") from None


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
