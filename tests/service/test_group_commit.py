"""Requests that wait together are written in one transaction, through a process of its own."""

from __future__ import annotations

import sqlite3
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.helpers.serving import NEW, examples, post, started

POSTS = 20


def commits(log: Path) -> int:
    """Number of transactions in a write-ahead log: a frame that ends one holds the size of the database."""
    content = log.read_bytes()
    page = struct.unpack(">I", content[8:12])[0]
    return sum(content[start + 4 : start + 8] != bytes(4) for start in range(32, len(content), 24 + page))


@pytest.mark.parametrize("most", [64, 1], ids=["together", "each by itself"])
def test_parallel_posts_are_few_transactions(tmp_path: Path, most: int) -> None:
    """While another process has the journal, one post waits to be written, and all others for that one."""
    limits = {"writing.AT_ONCE": most, "engine.LINGER": 600.0}  # nothing is learned, so nothing else is written
    folder = tmp_path / "m"
    with (
        started("--model", folder, *NEW, constants=limits) as (_, client),
        closing(sqlite3.connect(folder / "journal.sqlite", isolation_level=None)) as other,
        ThreadPoolExecutor(POSTS) as clients,
    ):
        assert post(client, examples(1)).status_code == 202  # starts the processes that decode
        before = commits(folder / "journal.sqlite-wal")
        given = examples(POSTS, seed=1)

        def posted(place: int) -> httpx.Response:
            with httpx.Client(base_url=client.base_url, timeout=60) as own:
                return post(own, given[place : place + 1])

        other.execute("BEGIN IMMEDIATE")
        answers = [clients.submit(posted, place) for place in range(POSTS)]
        time.sleep(3)  # less than SQLite waits
        other.execute("ROLLBACK")
        numbers = [answer.result().json()["accepted"][0] for answer in answers]
        assert sorted(numbers) == list(range(2, POSTS + 2))
        written = commits(folder / "journal.sqlite-wal") - before
        assert written == POSTS if most == 1 else written < POSTS / 2
