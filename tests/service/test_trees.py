"""Responses about the tree are made once for each of its versions, and however large it is, others do not wait."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import anyio
import httpx
import pytest

from dhocl.checks import true_tree
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.service import reports, trees
from dhocl.service.served import Snapshot
from dhocl.service.trees import EventsContent, TreeContent
from tests.helpers.machine import slowness
from tests.helpers.serving import NEW, examples, post, started
from tests.service.test_fairness import client_of

SECONDS = 2.0 * slowness()
CLIENTS = 60  # more than there are threads for requests


@pytest.mark.parametrize("name", ["tree", "tree_events"])
def test_others_do_not_wait_for_a_large_tree(tmp_path: Path, name: str) -> None:
    """To make the response takes seconds, without use of the processor, so that only waiting shows."""
    slowly = f"lambda *given: __import__('time').sleep({SECONDS}) or make(*given)"
    slow = {f"reports.{name}": f"(lambda make: {slowly})(dhocl.service.reports.{name})"}
    path = "/taxonomy" if name == "tree" else "/taxonomy/events"
    with (
        started("--model", tmp_path / "m", *NEW, constants=slow) as (_, client),
        client_of(client.base_url, "127.0.0.2") as other,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        post(client, examples(1))

        def read(_: int) -> tuple[int, float]:
            began = time.monotonic()
            return httpx.get(f"{client.base_url}{path}", timeout=600).status_code, time.monotonic() - began

        reading = [pool.submit(read, number) for number in range(CLIENTS)]
        time.sleep(SECONDS / 4)
        seconds = []
        for _ in range(5):
            began = time.monotonic()
            assert other.get("/health").status_code == 200
            assert other.get("/entries/1").status_code == 200
            seconds.append(time.monotonic() - began)
        found = [each.result() for each in reading]
        assert {status for status, _ in found} == {200}
        assert median(seconds) < SECONDS / 4
        assert max(taken for _, taken in found) < 4 * SECONDS, "made once, at most again after the observation"


class Current:
    """A snapshot of any tree."""

    ranks = ("kind", "species")

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy


def test_what_is_kept_follows_the_tree() -> None:
    """Also back to an earlier tree, as after a failure, and to another one of the same length."""
    tree = true_tree()
    current = Current(tree)
    whole, changes = TreeContent(lambda: current), EventsContent(lambda: current)  # type: ignore[arg-type,return-value]

    async def check() -> None:
        snapshot: Snapshot = current  # type: ignore[assignment]
        assert json.loads(await whole.get()) == json.loads(json.dumps(reports.tree(snapshot)))
        for since in (0, 3, 10**9):
            assert json.loads(await changes.get(since)) == json.loads(json.dumps(reports.tree_events(snapshot, since)))

    async def use() -> None:
        await check()
        earlier = tree.copy()
        tree.add(Label("wren", 1))
        await check()
        current.taxonomy = earlier
        await check()
        current.taxonomy = earlier.copy()
        current.taxonomy.add(Label("owl", 1))
        await check()
        current.taxonomy = Taxonomy()
        await check()

    anyio.run(use)


def test_it_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = reports.tree

    def counted(snapshot: Snapshot) -> dict[str, object]:
        made.append(1)
        return make(snapshot)

    monkeypatch.setattr(reports, "tree", counted)
    current = Current(true_tree())
    whole = TreeContent(lambda: current)  # type: ignore[arg-type,return-value]

    async def use() -> None:
        assert await whole.get() == await whole.get()
        current.taxonomy = current.taxonomy.copy()
        await whole.get()

    anyio.run(use)
    assert len(made) == 1, "a copy of the tree is no new version"


def test_a_large_response_is_sent_in_parts() -> None:
    """What a client does not read waits in memory, so it is not sent all at once."""
    content = bytes(range(256)) * 600
    response = trees.in_parts(content)

    async def use() -> list[bytes]:
        return [part async for part in response.body_iterator]  # type: ignore[attr-defined]

    parts = anyio.run(use)
    assert b"".join(parts) == content
    assert response.headers["content-length"] == str(len(content))
    assert max(map(len, parts)) <= 2**16
