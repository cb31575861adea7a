"""The page at `/`, in a real browser, of a real service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.helpers.browsing import drop, names, needs_chromium, opened_at, percent, teach, watched
from tests.helpers.serving import NEW, encoded, examples, post, running, settled, started

pytestmark = needs_chromium

TOKEN = "a-long-enough-token"
MARKUP = "<img src=x onerror=alert(1)>"
PASTE = """bytes => {
    const clipboardData = new DataTransfer();
    clipboardData.items.add(new File([new Uint8Array(bytes)], "image.png", { type: "image/png" }));
    document.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
}"""


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Birds and fish, linked by hand."""
    with started("--model", tmp_path_factory.mktemp("page") / "m", *NEW) as (_, client):
        for seed in range(3):
            post(client, examples(40, seed))
        for child, parent in (("robin", "bird"), ("crow", "bird"), ("carp", "fish"), ("cod", "fish")):
            below, above = {"name": child, "rank": "species"}, {"name": parent, "rank": "kind"}
            client.post("/taxonomy", json={"kind": "link", "child": below, "parent": above})
        settled(client)
        yield client


@pytest.fixture(params=[1280, 390], ids=["wide", "phone"])
def page(request: pytest.FixtureRequest, browser: Any, taught: httpx.Client) -> Iterator[Any]:
    opened = opened_at(browser, taught, request.param)
    yield opened
    wide, room = opened.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
    assert wide <= room, "the page is wider than the screen"
    assert opened.complaints == []
    opened.close()


def test_what_was_learned_is_shown(page: Any, taught: httpx.Client) -> None:
    page.get_by_role("treeitem", name="crow").wait_for()
    assert {"bird", "crow", "robin", "fish", "carp", "cod"} <= set(names(page))
    metrics = taught.get("/metrics").json()
    page.locator("#ranks tr").first.wait_for()
    assert page.locator("#learned").text_content() == str(metrics["learned"])
    shown = page.locator("#ranks tr", has_text="species").locator("td").all_text_contents()
    species = metrics["ranks"]["species"]
    assert shown == [
        str(metrics["classes"]["species"]),
        str(species["seen"]),
        percent(species["accuracy"]),
        percent(species["recent"]),
    ]
    newest = taught.get("/observations/recent?n=1").json()[0]
    first = page.locator("#recent li").first
    first.locator("img").wait_for()
    assert first.locator(".name").text_content() == newest["name"]
    assert ("✓ predicted" if newest["predicted"]["right"] else "✗ predicted") in first.text_content()


def test_the_lines_tell_their_numbers(page: Any, taught: httpx.Client) -> None:
    history = taught.get("/metrics").json()["history"]
    page.locator("#curve .dot").first.wait_for()
    page.locator("#curve").focus()
    page.keyboard.press("Home")
    first = history[0]
    shares = ", ".join(f"{rank} {percent(share)}" for rank, share in first["accuracy"].items())
    assert page.locator("#moment").text_content() == f"after {first['learned']}: {shares}"
    page.keyboard.press("Tab")
    box = page.locator("#curve").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + 30)
    assert page.locator("#moment").text_content().startswith(f"after {history[-1]['learned']}: ")


def test_an_image_is_dropped_corrected_and_the_tree_changes(page: Any, taught: httpx.Client) -> None:
    new = f"heron {len(taught.get('/taxonomy').json()['nodes'])}"
    image, _, _ = examples(1, seed=7)[0]
    drop(page, image)
    page.locator("#answer").wait_for()
    told = taught.post("/predict", files={"image": image}).json()["predictions"][0]["path"]
    shown = [page.locator("#path > li", has_text=node["rank"]).locator(".name").text_content() for node in told]
    assert shown == [node["name"] for node in told]
    assert percent(told[-1]["probability"]) in page.locator("#path > li").nth(len(told) - 1).text_content()

    before = taught.get("/metrics").json()["learned"]
    teach(page, "species", new)
    assert taught.get("/metrics").json()["learned"] == before + 1
    grown = page.get_by_role("treeitem", name=new)
    assert "new" in grown.get_attribute("class")
    assert "loose" in grown.get_attribute("class")
    assert grown.get_attribute("aria-level") == "1"
    page.get_by_role("button", name=f"Put it below {told[0]['name']}").click()
    page.get_by_text(f"{new} is below {told[0]['name']} now.").wait_for()
    assert grown.get_attribute("aria-level") == "2"
    nodes = {node["id"]: node for node in taught.get("/taxonomy").json()["nodes"]}
    parent = next(node["parent"] for node in nodes.values() if node["name"] == new)
    assert nodes[parent]["name"] == told[0]["name"]


def test_a_known_name_is_one_click(page: Any, taught: httpx.Client) -> None:
    classes = taught.get("/metrics").json()["classes"]
    page.evaluate(PASTE, list(examples(1, seed=8)[0][0]))
    page.locator("#answer").wait_for()
    other = page.locator(".names button").first
    name = other.text_content()
    other.click()
    page.get_by_text(f"Learned that this is {name} (species).").wait_for()
    page.get_by_label("right, it is").first.click()
    page.get_by_text("(kind).").wait_for()
    newest = taught.get("/observations/recent?n=2").json()
    assert [(o["name"], o["rank"]) for o in newest][1] == (name, "species")
    assert newest[0]["rank"] == "kind"
    assert taught.get("/metrics").json()["classes"] == classes


def test_names_are_text_wherever_they_are_shown(page: Any) -> None:
    drop(page, examples(1, seed=9)[0][0])
    page.locator("#answer").wait_for()
    teach(page, "species", MARKUP)
    assert MARKUP in names(page)
    page.locator("#recent .name", has_text=MARKUP).first.wait_for()
    page.locator("#search").fill("onerror")
    assert page.locator("#tree .name.hit").all_text_contents() == [MARKUP]
    assert page.locator("img[src='x']").count() == 0


def test_searching_and_folding(page: Any) -> None:
    page.get_by_role("treeitem", name="carp").wait_for()
    page.locator("#search").fill("CAR")
    assert page.locator("#tree .name.hit").all_text_contents() == ["carp"]
    assert "fish" in names(page)
    assert "crow" not in names(page)
    page.locator("#search").fill("")
    page.locator("#fold").click()
    assert {"carp", "crow"}.isdisjoint(names(page))
    page.locator("#tree").focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    first = page.locator(f"#{page.locator('#tree').get_attribute('aria-activedescendant')}")
    assert first.get_attribute("aria-level") == "2"
    assert page.locator("#line").text_content().endswith("‹ bird (kind)")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert "crow" not in names(page)


def test_what_is_no_image_is_told_kindly(page: Any) -> None:
    drop(page, b"GIF89a, but not really", "image/gif")
    page.get_by_role("alert").get_by_text("This file can not be read as an image.").wait_for()
    assert not page.locator("#path").is_visible()


def test_thousands_of_classes(browser: Any, taught: httpx.Client) -> None:
    """Only those in sight are drawn, and all can be found."""
    nodes = [{"id": n, "name": f"kin {n}", "rank": "species", "parent": n % 2, "since": n} for n in range(2, 6000)]
    roots = [{"id": n, "name": name, "rank": "kind", "parent": None, "since": n} for n, name in enumerate(("a", "b"))]
    large = {"ranks": ["kind", "species"], "version": 10**6, "nodes": roots + nodes}
    page = watched(browser, 1280)
    page.route("**/taxonomy", lambda route: route.fulfill(json=large))
    page.goto(str(taught.base_url))
    page.locator("#tree .name", has_text="b").wait_for()
    page.locator("#unfold").click()
    assert page.locator("#tree .row").count() < 100
    page.locator("#tree").focus()
    page.keyboard.press("End")
    page.get_by_role("treeitem", name="kin 5999").wait_for()
    assert "kin 2" not in names(page)
    page.locator("#search").fill("kin 1234")
    assert names(page) == ["a", "kin 1234"]
    assert page.complaints == []
    page.close()


def test_the_first_observation_and_the_line_breaking(browser: Any, tmp_path: Path) -> None:
    """An empty service is taught by the page; when it goes away the page says so, and finds it again."""
    with started("--model", tmp_path / "m", *NEW) as (_, client):
        port = client.base_url.port
        page = opened_at(browser, client)
        page.get_by_text("Nothing is learned yet. Send an image").wait_for()
        drop(page, examples(1)[0][0])
        page.get_by_text("Nothing is learned yet: name the image.").wait_for()
        teach(page, "species", "wren")
        assert "wren" in names(page)
        assert page.complaints == []
    page.get_by_text("The service can not be reached.").wait_for()
    with started("--model", tmp_path / "m", port=port or 0) as (_, client):
        page.wait_for_selector("#state.live")
        post(client, examples(4))
        page.get_by_role("treeitem", name="fish").wait_for()
    page.close()


def test_the_token_is_asked_for_once(browser: Any, tmp_path: Path) -> None:
    with running(tmp_path / "m", token=TOKEN, protect_reading=True) as client:
        post(client, examples(8))
        settled(client)
        page = watched(browser, 1280)
        page.goto(str(client.base_url))
        for word in ("a-wrong-but-long-token", TOKEN):
            page.get_by_label("token", exact=True).fill(word)
            page.get_by_role("button", name="Use token").click()
        page.wait_for_selector("#state.live")
        page.locator("#recent img").first.wait_for()
        drop(page, encoded(np.zeros((40, 30, 3), dtype=np.uint8), "BMP"), "image/bmp")  # the page makes a JPEG of it
        page.locator("#answer").wait_for()
        teach(page, "kind", "moss")
        page.reload()
        page.wait_for_selector("#state.live")
        assert not page.locator("#token").is_visible()
        assert [text for text in page.complaints if "401" not in text] == []
        page.close()
