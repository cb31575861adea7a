"""The labelling mode of the page: confirm, correct, skip, undo and remove, by one key each or by pointer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.browsing import needs_chromium, opened_at, watched
from tests.helpers.serving import TREE, Client, applied, examples, link, post, running, settled, until

pytestmark = needs_chromium

DROP = """images => {
    const transfer = new DataTransfer();
    for (const [name, bytes] of images)
        transfer.items.add(new File([new Uint8Array(bytes)], name, { type: "image/png" }));
    document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true }));
}"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running(tmp_path_factory.mktemp("page") / "m") as client:
        post(client, examples(40))
        settled(client)
        for child, parent in TREE.items():  # a path without a kind would have no guess there
            link(client, child, parent)
        applied(client, [client.service.journal.last])
        yield client


@pytest.fixture
def client(service: Client) -> Client:
    """With five images without a label, whatever a test before has done."""
    for number in service.service.pool.ids():
        service.delete(f"/images/{number}")
    add(service, 5)
    return service


@pytest.fixture
def page(browser: Any, client: Client) -> Iterator[Any]:
    opened = opened_at(browser, client)
    opened.get_by_role("button", name="Label images").click()
    opened.locator("#subject").wait_for()
    yield opened
    assert opened.complaints == []
    opened.close()


def add(client: Client, count: int) -> list[int]:
    files = [("image", ("x.png", image, "image/png")) for image, _, _ in examples(count, 7)]
    return list(client.post("/images", files=files).json()["accepted"])


def said(page: Any, text: str) -> None:
    page.locator("#labelled", has_text=text).wait_for()


def asked(page: Any) -> str:
    return str(page.locator("#question-name").text_content())


def pooled(client: Client) -> list[int]:
    return client.service.pool.ids()


def newest(client: Client) -> dict[str, Any]:
    return dict(client.get("/observations/recent?n=1").json()[0])


@pytest.mark.parametrize("key", ["y", "Enter", "pointer"])
def test_a_guess_is_confirmed(page: Any, client: Client, key: str) -> None:
    first = client.get("/suggestions?count=1").json()["suggestions"][0]
    assert asked(page) == f"{first['guess']['name']}?"
    assert first["rank"] in page.locator("#question-about").text_content()
    steps = page.locator("#label-path .name").all_text_contents()
    assert steps == [node["name"] for node in first["path"]]
    page.get_by_role("button", name="Yes").click() if key == "pointer" else page.keyboard.press(key)
    said(page, f"Labelled: {first['guess']['name']} ({first['rank']}).")
    assert first["id"] not in pooled(client)
    settled(client)
    assert (newest(client)["name"], newest(client)["rank"]) == (first["guess"]["name"], first["rank"])
    page.locator("#left", has_text="4 without a label").wait_for()


def test_another_name_is_typed_or_chosen(page: Any, client: Client) -> None:
    page.keyboard.press("c")
    page.get_by_label("rank of the name").select_option("kind")
    page.get_by_label("the right kind").fill(" fish ")  # its letters are no commands
    page.keyboard.press("Enter")
    said(page, "Labelled: fish (kind).")
    assert len(pooled(client)) == 4
    page.keyboard.press("c")
    page.get_by_label("rank of the name").select_option("species")
    page.locator("#label-naming input").fill("car")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    said(page, "Labelled: carp (species).")
    settled(client)
    assert [each["name"] for each in client.get("/observations/recent?n=2").json()] == ["carp", "fish"]


def test_a_coarser_class_of_the_path_is_right(page: Any, client: Client) -> None:
    step = page.locator("#label-path li").first
    name = step.locator(".name").text_content()
    step.get_by_role("button").click()
    said(page, f"Labelled: {name}")
    settled(client)
    assert newest(client)["name"] == name


def test_a_label_is_taken_back(page: Any, client: Client) -> None:
    """The model forgets it, and the image is without a label again, under another id."""
    before, deleted = pooled(client), client.get("/metrics").json()["deleted"]
    question = asked(page)
    page.keyboard.press("y")
    said(page, "Labelled:")
    (labelled,) = set(before) - set(pooled(client))
    number = client.service.journal.last
    page.keyboard.press("u")
    said(page, "The image is without a label again.")
    assert asked(page) == question, "it is the same image"
    assert pooled(client) == [each for each in before if each != labelled] + [max(before) + 1]
    assert client.get("/metrics").json()["deleted"] == deleted + 1
    assert number not in [each["number"] for each in client.get("/observations/recent?n=99").json()]
    assert page.locator("#label-undo").is_disabled()
    page.keyboard.press("y")
    said(page, "Labelled:")
    assert len(pooled(client)) == 4


def test_what_is_skipped_comes_last_or_by_undo(page: Any, client: Client) -> None:
    order = [each["id"] for each in client.get("/suggestions").json()["suggestions"]]
    shown = []
    for _ in order:
        shown.append(page.evaluate("subject.id"))
        page.keyboard.press("s")
        page.wait_for_function("id => subject && subject.id !== id && !busy", arg=shown[-1])
    assert shown == order
    said(page, "All were skipped, so they come again.")
    page.keyboard.press("u")
    said(page, "Back to the image that was skipped.")
    assert page.evaluate("subject.id") == order[-1]
    assert len(pooled(client)) == 5


def test_a_removal_is_confirmed(page: Any, client: Client) -> None:
    shown = page.evaluate("subject.id")
    for key in ("Escape", "Enter"):
        page.keyboard.press("Delete")
        page.locator("#erase", has_text="erased from the disk").wait_for()
        if key == "Enter":
            page.keyboard.press("Shift+Tab")  # from Cancel
        page.keyboard.press(key)
        page.locator("#erase").wait_for(state="hidden")
    said(page, "Removed: the image is erased from the disk.")
    assert shown not in pooled(client)


def test_what_was_labelled_elsewhere_is_passed_over(page: Any, client: Client) -> None:
    shown = page.evaluate("subject.id")
    client.delete(f"/images/{shown}")
    page.keyboard.press("y")
    said(page, "There is no such image in the pool")
    assert page.evaluate("subject.id") != shown
    page.complaints.clear()  # Chromium reports the status


def test_a_full_queue_keeps_the_image(page: Any, client: Client) -> None:
    shown = page.evaluate("subject.id")
    full = {"status": 429, "headers": {"Retry-After": "7"}, "json": {"detail": "the queue is full: 9 entries"}}
    page.route("**/label", lambda route: route.fulfill(**full))
    page.keyboard.press("y")
    said(page, "The queue is full: 9 entries. Try again in 7 s.")
    assert page.evaluate("subject.id") == shown
    page.unroute("**/label")
    page.keyboard.press("y")
    said(page, "Labelled:")
    page.complaints.clear()


def test_a_label_that_can_not_be_forgotten_stays(page: Any, client: Client) -> None:
    page.keyboard.press("y")
    said(page, "Labelled:")
    settled(client)
    page.route("**/entries/*", lambda route: route.fulfill(json={"state": "refused", "reason": "it can not"}))
    page.keyboard.press("u")
    said(page, "Refused: it can not.")
    until(lambda: len(pooled(client)) == 4)


def test_many_files_from_nothing(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An empty pool, then nothing learned, then a guess; a file that is no image is left out."""
    with running(tmp_path_factory.mktemp("page") / "m") as client:
        page = watched(browser, 390)
        page.goto(f"{client.base_url}/#label")
        page.locator("#question-name", has_text="No images without a label").wait_for()
        files = [[f"{place}.png", list(image)] for place, (image, _, _) in enumerate(examples(8, 5))]
        page.evaluate(DROP, [*files, ["notes.txt", list(b"text")]])
        page.locator("#pool-said", has_text="8 images added. 1 refused. notes.txt:").wait_for()
        assert page.locator("#left").text_content() == "8 without a label"
        page.locator("#question-about", has_text="Nothing is learned yet. Name the image").wait_for()
        assert page.locator("#label-yes").is_disabled()
        assert page.evaluate("document.getElementById('subject').naturalWidth") == 32, "as posted, not the thumbnail"
        for _ in range(8):
            rank = page.locator("#label-naming select").input_value()
            page.locator("#label-naming input").fill("bird" if rank == "kind" else "robin")
            page.keyboard.press("Enter")
            said(page, "Labelled:")
            page.wait_for_function("() => !busy")
            if not page.locator("#label-naming form").count():
                break
        assert settled(client)["learned"] >= 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.close()


def test_a_guess_is_explained_by_examples(page: Any) -> None:
    for _ in range(2):
        shown, name = page.evaluate("[subject.id, subject.guess.name]")
        page.locator("#label-why-title", has_text=f"Most similar examples of {name}").wait_for()
        assert 1 <= page.locator("#label-why img").count() <= 4
        page.keyboard.press("s")
        page.wait_for_function("id => subject && subject.id !== id && !busy", arg=shown)
