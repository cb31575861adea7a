"""The journal: a numbered sequence of accepted entries. An entry is on disk before it is acknowledged.

Entries are observations, corrections of them and revisions of the tree, applied in order. A model at entry n is brought
up to date by applying the entries after n in the same micro-batches: each entry stores the micro-batch it was applied
in. The newest images are kept, so that their observations can be corrected. Older ones are deleted once no checkpoint
needs them, and old rows too, so that the file stays bounded.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from dhocl.core.errors import InputError
from dhocl.core.files import Lock
from dhocl.service import pool
from dhocl.service.images import Decoded
from dhocl.service.journal_format import DELETION, prepare

State = Literal["queued", "done", "refused"]

IMAGES = 10_000  # number of newest images kept
ROWS = 10_000  # number of newest entries kept
COLUMNS = "number, kind, time, content, state, step, outcome, target"


class MovedError(Exception):
    """A file or folder is no longer where it was. What is written now might be found by nobody."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} was moved or deleted: stop the service, put it back, and start again")


class Post(NamedTuple):
    """Entries that are accepted together, all or none."""

    kind: str
    contents: Sequence[dict[str, Any]]
    images: Sequence[Decoded] = ()  # of observations, one each
    targets: Sequence[int] = ()  # of corrections: the numbers of the observations
    pooled: int | None = None  # instead of images: the one of the pool with this id, which leaves the pool
    back: int | None = None  # of a deletion: the image goes back to the pool, which has at most so many


class Entry(NamedTuple):
    number: int
    kind: str
    time: float
    content: dict[str, Any]
    state: State
    step: int | None
    outcome: dict[str, Any] | None
    target: int | None = None


class Outcome(NamedTuple):
    number: int
    state: State
    outcome: dict[str, Any]


class Journal:
    """The journal in an SQLite file, locked against other processes. Safe for several threads."""

    def __init__(self, path: Path, images: int | None = None) -> None:
        """`images`: number of newest images to keep; None for the default."""
        self._path = path
        self.kept = IMAGES if images is None else images
        self.log_is_clear = False  # else the write-ahead log may hold deleted images
        self._owned = Lock(path, mode=0o600)  # SQLite gives its other files the same mode
        self._lock = threading.Lock()
        self._queued = 0
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(path)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: a damaged name in an error of SQLite
            self.close()
            raise InputError(f"{path} can not be used as a journal ({error}): restore it or use a new folder") from None

    def _prepare(self, path: Path) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")  # a commit returns once it is on disk
        self._db.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten
        if not prepare(self._db):
            raise InputError(f"{path} was written by another version of dhocl: use that version or a new folder")
        self._db.executescript(pool.SCHEMA)  # journals of earlier versions have none
        self.entries("LIMIT 1")
        self.one("SELECT number, pixels, thumbnail FROM images LIMIT 1")
        if not isinstance(self.one("SELECT value FROM totals"), int):
            raise sqlite3.DatabaseError("it has no totals")
        self._queued = int(self.one("SELECT count(*) FROM entries WHERE state = 'queued'"))

    # -- for requests that write ----------------------------------------------------------------------------------

    def append(self, posts: Sequence[Post], room: int | None = None) -> list[list[int] | None]:
        """Append entries in one transaction. They are on disk when this returns.

        Returns the numbers of each post; None for a post that is not accepted, as more than `room` would be queued;
        none at all if its image is no longer in the pool, or is deleted and can not go back there.
        """
        found: list[list[int] | None] = []
        with self._lock:
            queued = self._queued
            with self._transaction():
                for post in posts:
                    fits = room is None or queued + len(post.contents) <= room
                    found.append(self._insert(post) if fits else None)
                    queued += len(found[-1] or ())
            self._queued = queued
        return found

    def _insert(self, post: Post) -> list[int]:
        now, numbers, images = time.time(), [], post.images
        if post.pooled is not None:
            images = pool.take(self._db, post.pooled)
            if not images:
                return []
        targets: Sequence[int | None] = post.targets or [None] * len(post.contents)
        for content, target in zip(post.contents, targets, strict=True):
            if post.back is not None:
                unlabelled = pool.put_back(self._db, target or 0, post.back)
                if unlabelled is None:
                    return []
                content = content | {"pooled": unlabelled}
            row = (post.kind, now, json.dumps(content), target)
            cursor = self._db.execute("INSERT INTO entries (kind, time, content, target) VALUES (?, ?, ?, ?)", row)
            numbers.append(int(cursor.lastrowid or 0))
        if post.kind == "observation":
            rows = [(number, *image) for number, image in zip(numbers, images, strict=True)]
            self._db.executemany("INSERT INTO images VALUES (?, ?, ?)", rows)
            self._db.execute("UPDATE totals SET value = value + ?", (len(numbers),))
        return numbers

    @property
    def queued(self) -> int:
        return self._queued

    # -- for the engine -------------------------------------------------------------------------------------------

    def after(self, number: int, limit: int) -> list[Entry]:
        """The next entries after `number`, in order."""
        return self.entries("WHERE number > ? ORDER BY number LIMIT ?", number, limit)

    def settle(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """Store the outcomes of the entries of a micro-batch."""
        rows = [(o.state, step, json.dumps(o.outcome), o.number) for o in outcomes]
        with self._lock:
            before = self._db.total_changes
            with self._transaction():
                self._db.executemany(
                    "UPDATE entries SET state = ?, step = ?, outcome = ? WHERE number = ? AND state = 'queued'", rows
                )
            self._queued -= self._db.total_changes - before

    def pixels(self, first: int, last: int) -> dict[int, bytes]:
        """Pixels of the images of these entries, by number."""
        return dict(self.rows("SELECT number, pixels FROM images WHERE number BETWEEN ? AND ?", first, last))

    def prune(self, covered: int) -> None:
        """Delete old images and entries, up to `covered`, which all checkpoints contain.

        What a correction after `covered` is about stays: a replay needs its image and its label.
        """
        needed = "(SELECT target FROM entries WHERE target IS NOT NULL AND number > ?1)"
        with self.transaction() as db:
            for table, kept in (("entries", max(ROWS, self.kept)), ("images", self.kept)):
                old = f"(SELECT number FROM {table} ORDER BY number DESC LIMIT 1 OFFSET ?2)"
                also = f"AND coalesce(target, 0) NOT IN {needed}" if table == "entries" else ""
                db.execute(
                    f"DELETE FROM {table} WHERE number <= ?1 AND number <= {old} AND number NOT IN {needed} {also}",
                    (covered, kept),
                )

    def clear_log(self) -> bool:
        """Empty the write-ahead log, which may hold deleted images. False while a copy of the journal is being made."""
        with self._lock:
            busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            self.log_is_clear = not busy
        return self.log_is_clear

    # -- for requests that read -----------------------------------------------------------------------------------

    @property
    def observations(self) -> int:
        """Number of observations accepted so far."""
        return int(self.one("SELECT value FROM totals"))

    @property
    def last(self) -> int:
        """Number of the newest entry."""
        return int(self.one("SELECT coalesce(max(seq), 0) FROM sqlite_sequence"))

    def entry(self, number: int) -> Entry | None:
        return next(iter(self.entries("WHERE number = ?", number)), None)

    def recent(self, limit: int) -> list[Entry]:
        """The newest observations, newest first."""
        present = f"number NOT IN (SELECT target FROM entries WHERE {DELETION})"
        return self.entries(f"WHERE kind = 'observation' AND {present} ORDER BY number DESC LIMIT ?", limit)

    def whole(self, applied: int) -> bool:
        """Whether the journal has all entries after entry `applied`, and the images that they need."""
        query = """
            SELECT (SELECT count(*) FROM entries WHERE number > ?1)
                 = (SELECT coalesce(max(seq), 0) - ?1 FROM sqlite_sequence)
               AND (SELECT count(*) FROM entries WHERE number > ?1 AND kind = 'observation')
                 = (SELECT count(*) FROM images WHERE number > ?1)
               AND NOT EXISTS (SELECT 1 FROM entries WHERE number > ?1 AND target IS NOT NULL AND state = 'done'
                               AND target NOT IN (SELECT number FROM images))
        """
        return bool(self.one(query, applied))

    def thumbnail(self, number: int) -> bytes | None:
        return self.one("SELECT thumbnail FROM images WHERE number = ?", number)  # type: ignore[no-any-return]

    def close(self) -> None:
        with self._lock:
            self._db.close()
            self._owned.close()  # last: closing a file drops the locks that SQLite has on it

    def check_place(self) -> None:
        if not self._owned.in_place:
            raise MovedError(self._path)

    def entries(self, where: str, *values: int | str) -> list[Entry]:
        return [_entry(*row) for row in self.rows(f"SELECT {COLUMNS} FROM entries {where}", *values)]

    def one(self, query: str, *values: int | str) -> Any:
        rows = self.rows(query, *values)
        return rows[0][0] if rows else None

    def rows(self, query: str, *values: int | str) -> list[Any]:
        with self._lock:
            try:
                return self._db.execute(query, values).fetchall()
            except UnicodeDecodeError:
                raise sqlite3.DatabaseError("a text is damaged") from None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is done in it is on disk at its end, or nothing."""
        with self._lock, self._transaction():
            yield self._db

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.check_place()
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # after a full disk, SQLite has rolled back already
                self._db.execute("ROLLBACK")
            raise


def _entry(
    number: int, kind: str, when: float, content: str, state: State, step: int | None, outcome: Any, target: int | None
) -> Entry:
    """DatabaseError if the row is not one that was written here."""
    try:
        found = outcome and dict(json.loads(outcome))
        entry = Entry(number, kind, when, dict(json.loads(content)), state, step, found, target)
        if kind == "observation":
            whole = isinstance(entry.content["name"], str) and isinstance(entry.content["rank"], str)
            whole = whole and (state != "done" or isinstance((entry.outcome or {})["right"], dict))
        elif kind == "correction":
            whole = isinstance(target, int) and entry.content["kind"] in ("delete", "relabel")
        else:
            whole = kind == "revision"
        whole = whole and state in get_args(State) and isinstance(step, int | None)
    except (ValueError, TypeError, KeyError):
        whole = False
    if not whole:
        raise sqlite3.DatabaseError(f"entry {number} of the journal is damaged: restore it from a backup")
    return entry
