"""Images without a label, in tables of the journal's file: so a label moves one of them in a single transaction."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dhocl.service.images import Decoded
from dhocl.service.journal_format import PENDING

if TYPE_CHECKING:
    from dhocl.service.journal import Journal

SCHEMA = """
BEGIN;
CREATE TABLE IF NOT EXISTS pool (
    id INTEGER PRIMARY KEY,  -- in order of arrival
    time REAL NOT NULL,
    pixels BLOB NOT NULL,
    thumbnail BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS pool_last (id INTEGER NOT NULL);  -- ids are not used again
INSERT INTO pool_last SELECT 0 WHERE NOT EXISTS (SELECT * FROM pool_last);
COMMIT;
"""


def take(db: sqlite3.Connection, number: int) -> list[Decoded]:
    """Remove an image, inside of a transaction. Empty if it is not there."""
    rows = db.execute("SELECT pixels, thumbnail FROM pool WHERE id = ?", (number,)).fetchall()
    db.execute("DELETE FROM pool WHERE id = ?", (number,))
    return [Decoded(*row) for row in rows]


def put_back(db: sqlite3.Connection, observation: int, most: int) -> int | None:
    """Copy the image of an observation to the pool, inside of a transaction. Its id; None if it is deleted."""
    rows = db.execute(
        "SELECT pixels, thumbnail FROM images WHERE number = ?1 "
        f"AND NOT EXISTS (SELECT 1 FROM entries WHERE target = ?1 AND {PENDING})",
        (observation,),
    ).fetchall()
    return _insert(db, [Decoded(*row) for row in rows], most)[0] if rows else None


def _insert(db: sqlite3.Connection, images: Sequence[Decoded], most: int) -> list[int]:
    last = int(db.execute("SELECT id FROM pool_last").fetchone()[0])
    numbers = list(range(last + 1, last + 1 + len(images)))
    rows = [(number, time.time(), *image) for number, image in zip(numbers, images, strict=True)]
    db.executemany("INSERT INTO pool VALUES (?, ?, ?, ?)", rows)
    db.execute("UPDATE pool_last SET id = ?", (numbers[-1],))
    oldest = "SELECT id FROM pool ORDER BY id DESC LIMIT -1 OFFSET ?"
    db.execute(f"DELETE FROM pool WHERE id IN ({oldest})", (most,))
    return numbers


class Pool:
    """At most `most` images. The oldest leave first."""

    def __init__(self, journal: Journal, most: int) -> None:
        self._journal = journal
        self._most = most

    def add(self, images: Sequence[Decoded]) -> list[int]:
        """Ids of the images. They are on disk when this returns."""
        with self._journal.transaction() as db:
            return _insert(db, images, self._most)

    def remove(self, number: int) -> bool:
        """Remove an image from the disk, too. Whether it was there."""
        with self._journal.transaction() as db:
            found = db.execute("DELETE FROM pool WHERE id = ?", (number,)).rowcount > 0
        self._journal.clear_log()
        return found

    def ids(self) -> list[int]:
        """Oldest first."""
        return [number for (number,) in self._journal.rows("SELECT id FROM pool ORDER BY id")]

    def __len__(self) -> int:
        return int(self._journal.rows("SELECT count(*) FROM pool")[0][0])

    def pixels(self, number: int) -> bytes | None:
        """None if it has left."""
        rows = self._journal.rows("SELECT pixels FROM pool WHERE id = ?", number)
        return rows[0][0] if rows else None

    def thumbnail(self, number: int) -> bytes | None:
        rows = self._journal.rows("SELECT thumbnail FROM pool WHERE id = ?", number)
        return rows[0][0] if rows else None
