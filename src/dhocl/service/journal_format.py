"""The tables of a journal, and how one of an earlier version becomes one of this version."""

from __future__ import annotations

import sqlite3

VERSION = 3
SCHEMA = """
BEGIN;
CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- not reused after rows are deleted
    kind TEXT NOT NULL,
    time REAL NOT NULL,
    content TEXT NOT NULL,  -- JSON
    state TEXT NOT NULL DEFAULT 'queued',
    step INTEGER,  -- micro-batch in which it was applied
    outcome TEXT,  -- JSON
    target INTEGER  -- the observation that a correction is about
);
CREATE INDEX queued ON entries (number) WHERE state = 'queued';
CREATE INDEX corrections ON entries (target) WHERE target IS NOT NULL;
CREATE TABLE images (  -- separate: an update rewrites whole rows
    number INTEGER PRIMARY KEY,
    pixels BLOB NOT NULL,
    thumbnail BLOB NOT NULL
);
CREATE TABLE totals (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO totals VALUES ('observations', 0);
PRAGMA user_version = 3;
COMMIT;
"""
FROM_2 = """
BEGIN;
ALTER TABLE entries ADD COLUMN target INTEGER;
CREATE INDEX corrections ON entries (target) WHERE target IS NOT NULL;
PRAGMA user_version = 3;
COMMIT;
"""
STEPS = {0: SCHEMA, 2: FROM_2}  # version -> what leads to the current one; 0 is an empty file

# Conditions on entries.
_DELETE = "target IS NOT NULL AND json_extract(content, '$.kind') = 'delete'"
DELETION = f"{_DELETE} AND state = 'done'"
PENDING = f"{_DELETE} AND state != 'refused'"  # a deletion that is or will be done


def prepare(db: sqlite3.Connection) -> bool:
    """Bring the tables to the current version. False if they are of a version that is not known."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version in STEPS:
        db.executescript(STEPS[version])
    return version in STEPS or version == VERSION
