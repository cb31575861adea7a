"""Why: stored examples of a class, the most similar first, by the labels and the tree of now."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dhocl.service.images import decode
from dhocl.service.served import as_array, as_tensor
from tests.helpers.browsing import drop, launched, needs_chromium, opened_at
from tests.helpers.serving import TREE, Client, applied, examples, link, post, running, settled

GIVEN = examples(40)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running(tmp_path_factory.mktemp("why") / "m") as client:
        post(client, GIVEN)
        settled(client)
        for child, parent in TREE.items():
            link(client, child, parent)
        applied(client, [client.service.journal.last])
        yield client


def ask(client: Client, image: bytes, name: str, rank: str, **more: int) -> dict[str, Any]:
    answer = client.post("/examples", params={"name": name, "rank": rank, **more}, files={"image": image})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def numbers(found: dict[str, Any]) -> list[int]:
    return [each["number"] for each in found["examples"]]


def labelled(*names: str) -> set[int]:
    return {place for place, (_, name, _) in enumerate(GIVEN, 1) if name in names}


def test_the_class_and_those_below_it(client: Client) -> None:
    image = examples(1, 9)[0][0]
    assert set(numbers(ask(client, image, "robin", "species", count=24))) == labelled("robin")
    found = ask(client, image, "bird", "kind", count=24)
    assert set(numbers(found)) <= labelled("bird", "robin", "crow")
    assert found["compared"] == len(labelled("bird", "robin", "crow"))
    assert found["examples"][0]["thumbnail"] == f"/observations/{numbers(found)[0]}/thumbnail"
    assert client.get(found["examples"][0]["thumbnail"]).status_code == 200


def test_the_order_is_that_of_the_distances(client: Client) -> None:
    """Against a loop over all observations of the class. An image that is stored is its own nearest."""
    place = max(labelled("cod"))
    image = GIVEN[place - 1][0]
    snapshot = client.service.engine.snapshot

    def phi(content: bytes) -> np.ndarray:
        features = snapshot.frozen_features(as_tensor([as_array(decode(content, 32, 10**6).pixels, 32)]))
        assert features is not None
        return features[0].numpy()

    own = phi(image)
    distances = {each: float(((phi(GIVEN[each - 1][0]) - own) ** 2).sum()) for each in labelled("fish", "cod", "carp")}
    found = ask(client, image, "fish", "kind", count=5)
    assert found["by"] == "similarity"
    assert numbers(found) == sorted(distances, key=lambda each: distances[each])[:5]
    assert numbers(found)[0] == place


def test_present_labels_count(client: Client) -> None:
    """Corrected ones, synonyms, and not those that are deleted."""
    image = examples(1, 9)[0][0]
    given = post(client, [(GIVEN[0][0], "gadus", "species")] * 3).json()["accepted"]
    merge = {"kind": "merge", "class": {"name": "gadus", "rank": "species"}, "into": "cod"}
    entries = [
        client.patch(f"/observations/{given[0]}", json={"name": "wren", "rank": "species"}).json()["accepted"],
        client.delete(f"/observations/{given[1]}").json()["accepted"],
        client.post("/taxonomy", json=merge).json()["accepted"],
    ]
    assert applied(client, entries) == ["done"] * 3
    assert numbers(ask(client, image, "wren", "species")) == [given[0]]
    found = ask(client, image, "cod", "species", count=24)
    assert set(numbers(found)) == labelled("cod") | {given[2]}
    assert {each["name"] for each in found["examples"]} == {"cod"}


def test_a_network_that_is_trained_has_the_newest(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhocl.service.served.Snapshot.frozen_features", lambda self, x: None)
    found = ask(client, GIVEN[0][0], "carp", "species", count=3)
    assert (found["by"], numbers(found)) == ("time", sorted(labelled("carp"), reverse=True)[:3])


def test_refusals_are_one_line(client: Client) -> None:
    file = ("image", ("x.png", GIVEN[0][0], "image/png"))
    for name, rank, files, status in [
        ("robin", "genus", [file], 422),
        ("nobody", "species", [file], 404),
        ("robin", "species", [file, file], 422),
    ]:
        answer = client.post("/examples", params={"name": name, "rank": rank}, files=files)
        assert (answer.status_code, set(answer.json())) == (status, {"detail"})


@needs_chromium
def test_the_page_shows_them_below_a_prediction(client: Client) -> None:
    with launched() as browser:
        page = opened_at(browser, client)
        drop(page, GIVEN[0][0])
        page.locator("#why img").first.wait_for()
        name = page.evaluate("(prediction.sure ?? prediction.path[0]).name")
        assert page.locator("#why-title").text_content() == f"Most similar examples of {name}"
        assert 1 <= page.locator("#why img").count() <= 4
        white = BytesIO()
        Image.new("RGB", (32, 32), "white").save(white, "PNG")
        page.route("**/examples?*", lambda route: route.abort())
        drop(page, white.getvalue())
        page.locator("#why").wait_for(state="hidden")
        page.locator("#answer").wait_for()
        page.close()
