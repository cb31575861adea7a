"""Malformed headers, and the largest number of classes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.helpers.serving import NEW, examples, names, post, settled, started, until

IMAGE = examples(1)[0][0]
BIRD = "type(label)('bird', 0)"
NEW_BIRDS = f"[(type(label)(f'bird {{n}}', 1), {BIRD}) for n in range(50)]"
FLOOD = f"lambda self, label, known: {NEW_BIRDS} if label.level == 0 else [(label, {BIRD})]"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with started("--model", tmp_path_factory.mktemp("few") / "m", *NEW, "--max-classes", 3) as (_, client):
        yield client


@pytest.mark.parametrize(("charset", "code"), [("undefined", 400), ("none", 422), ("base64", 422), ("idna", 422)])
def test_no_charset_is_an_internal_error(served: httpx.Client, charset: str, code: int) -> None:
    """Names in an unknown one are read as Latin-1; the form is refused because it has no image."""
    body = b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n' + b"\xff.." + b"\r\n--x--\r\n"
    for path in ("/observations", "/predict"):
        kind = f"multipart/form-data; boundary=x; charset={charset}"
        answer = served.post(path, content=body, headers={"Content-Type": kind})
        assert (answer.status_code, "UTF-8" in answer.json()["detail"]) == (code, code == 400)


@pytest.mark.parametrize("origin", ["http://[::1", "http://[", "//[x", "http://evil]"])
def test_a_malformed_origin_is_403(served: httpx.Client, origin: str) -> None:
    answer = served.post("/predict", files={"image": ("x", IMAGE)}, headers={"Origin": origin})
    assert answer.status_code == 403


def test_classes_beyond_the_limit_are_refused(served: httpx.Client) -> None:
    assert post(served, [(IMAGE, "bird", "kind"), (IMAGE, "robin", "species")]).status_code == 202
    settled(served)
    many = post(served, [(IMAGE, "crow", "species"), (IMAGE, "wren", "species")])
    assert (many.status_code, "--max-classes" in many.json()["detail"]) == (409, True)
    assert post(served, [(IMAGE, "crow", "species"), (IMAGE, "crow", "species")]).status_code == 202
    settled(served)
    bird, wren = {"name": "bird", "rank": "kind"}, {"name": "wren", "rank": "species"}
    assert served.post("/taxonomy", json={"kind": "add", "class": wren, "parent": bird}).status_code == 409
    assert served.post("/taxonomy", json={"kind": "rename", "class": bird, "to": "Aves"}).status_code == 409
    assert post(served, [(IMAGE, "robin", "species")]).status_code == 202, "known classes are still learned"
    assert settled(served)["classes"] == {"kind": 1, "species": 2}


def test_sources_add_no_classes_beyond_the_limit(tmp_path: Path) -> None:
    """Asked about a bird, this source names ever new species of it, and links those that are known."""
    source = {"service.open_source": f"lambda *given, **more: type('Flood', (), {{'query': {FLOOD}}})()"}
    given = ["--source", "tree:any", "--max-classes", 5]
    with started("--model", tmp_path / "m", *NEW, *given, constants=source) as (_, client):
        post(client, [(IMAGE, "bird", "kind"), (IMAGE, "robin", "species")])
        until(lambda: names(client).get("robin") == "bird", 60)
        time.sleep(2)
        assert set(names(client)) == {"bird", "robin", "bird 0", "bird 1", "bird 2"}
