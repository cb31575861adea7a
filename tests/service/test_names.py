"""Names through a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.helpers.serving import NEW, examples, post, started

INVISIBLE = [
    "ro\u200bbin",
    "robin\u200d",
    "\u200crobin",
    "ro\u200dbin",
    "robin\U000e0061",
    "robin\u2060",
    "\ufeffrobin",
    "ro\u00adbin",
    "robin\ufe0f",
    "\u3164",
    "\u2800",
    "ro\u034fbin",
    "robin\u061c",
    "\u0645\u06cc\u200c",
    "\u0915\u094d\u200d",
    "robin\u202e",
]
NEEDED = [
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\u0915\u094d\u200d\u0937",
    "\u0d9a\u0dca\u200d\u0dbb",
    "h\u00e9ron",
    "\u30c4\u30d0\u30e1",
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with started("--model", tmp_path_factory.mktemp("names") / "m", *NEW) as (_, client):
        yield client


@pytest.mark.parametrize("name", INVISIBLE, ids=ascii)
def test_invisible_names_are_refused(served: httpx.Client, name: str) -> None:
    answer = post(served, [(examples(1)[0][0], name, "species")])
    assert (answer.status_code, "not allowed in a name" in answer.json()["detail"]) == (422, True)
    revision = {"kind": "rename", "class": {"name": "bird", "rank": "kind"}, "to": name}
    assert served.post("/taxonomy", json=revision).status_code == 422


@pytest.mark.parametrize("name", NEEDED, ids=ascii)
def test_joiners_that_a_script_needs_are_kept(served: httpx.Client, name: str) -> None:
    assert post(served, [(examples(1)[0][0], name, "species")]).status_code == 202
    assert served.get("/observations/recent?n=1").json()[0]["name"] == name
