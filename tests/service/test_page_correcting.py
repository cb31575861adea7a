"""The page gives recent observations another name and deletes them, by keyboard and by pointer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.browsing import needs_chromium, opened_at
from tests.helpers.serving import Client, examples, post, running, settled, until

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running(tmp_path_factory.mktemp("page") / "m") as client:
        post(client, examples(40))
        settled(client)
        yield client


@pytest.fixture
def page(browser: Any, client: Client) -> Iterator[Any]:
    opened = opened_at(browser, client)
    opened.locator("#recent li").first.wait_for()
    yield opened
    assert opened.complaints == []
    opened.close()


def newest(client: Client) -> dict[str, Any]:
    return dict(client.get("/observations/recent?n=1").json()[0])


def said(page: Any, text: str) -> None:
    page.locator("#corrected", has_text=text).wait_for()


def test_another_name_by_keyboard(page: Any, client: Client) -> None:
    before = newest(client)
    item = page.locator(f"#observation-{before['number']}")
    item.get_by_role("button", name="another name").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.ariaLabel") == f"the right {before['rank']}"
    page.keyboard.type("  grey   wagtail")
    assert item.get_by_role("button", name="Correct as new").is_enabled()
    page.keyboard.press("Enter")
    said(page, f"is grey wagtail ({before['rank']}), not {before['name']}.")
    after = newest(client)
    assert (after["number"], after["name"], after["was"]["name"]) == (before["number"], "grey wagtail", before["name"])
    assert item.locator(".name").text_content() == "grey wagtail"
    assert f"called {before['name']} before" in item.text_content()
    assert not item.locator("form").count()
    assert "another name" in page.evaluate("document.activeElement.ariaLabel")


def test_the_focus_stays_when_an_observation_is_corrected_elsewhere(page: Any, client: Client) -> None:
    before = newest(client)
    item = page.locator(f"#observation-{before['number']}")
    item.get_by_role("button", name="Delete").focus()
    client.patch(f"/observations/{before['number']}", json={"name": "pied wagtail", "rank": before["rank"]})
    item.locator(".name", has_text="pied wagtail").wait_for()
    assert page.evaluate("document.activeElement.ariaLabel") == f"delete pied wagtail, number {before['number']}"


def test_a_known_name_of_another_rank_by_pointer(page: Any, client: Client) -> None:
    number = newest(client)["number"]
    item = page.locator(f"#observation-{number}")
    item.get_by_role("button", name="another name").click()
    item.get_by_label("rank of the name").select_option("kind")
    item.locator(".names").get_by_text("fish").click()
    said(page, "is fish (kind), not")
    assert (newest(client)["name"], newest(client)["rank"]) == ("fish", "kind")


def test_names_are_reached_by_arrow_keys(page: Any, client: Client) -> None:
    item = page.locator(f"#observation-{newest(client)['number']}")
    item.get_by_role("button", name="another name").click()
    page.keyboard.press("ArrowDown")
    first = item.locator(".names button").first.text_content()
    assert page.evaluate("document.activeElement.textContent") == first
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.tagName") == "INPUT"
    page.keyboard.press("Escape")
    assert not item.locator("form").count()


def test_what_is_typed_stays_while_others_arrive(page: Any, client: Client) -> None:
    """Also if so many arrive that the observation would leave the list."""
    item = page.locator(f"#observation-{newest(client)['number']}")
    item.get_by_role("button", name="another name").click()
    page.keyboard.type("half a na")
    last = post(client, examples(20, 3)).json()["accepted"][-1]
    page.locator(f"#observation-{last}").wait_for()
    assert item.locator("input").input_value() == "half a na"
    page.keyboard.press("Escape")
    item.wait_for(state="detached")


def test_a_deletion_is_confirmed_and_erases(page: Any, client: Client) -> None:
    found = newest(client)
    item = page.locator(f"#observation-{found['number']}")
    for answer in ("Cancel", "Delete and erase"):
        item.get_by_role("button", name="delete").click()
        page.locator("#erase", has_text="The image is erased from the disk. This can not be undone.").wait_for()
        assert newest(client)["number"] == found["number"]
        page.locator("#erase").get_by_role("button", name=answer).click()
    said(page, f"Deleted: {found['name']}, number {found['number']}.")
    assert not item.count()
    said(page, "Its image is erased from the disk.")
    assert client.get(found["thumbnail"]).status_code == 404


def test_a_refusal_is_shown(page: Any, client: Client) -> None:
    """Of what was deleted elsewhere, before the page knows it."""
    item = page.locator(f"#observation-{newest(client)['number']}")
    page.route("**/observations/*", lambda route: route.fulfill(status=410, json={"detail": "observation is deleted"}))
    item.get_by_role("button", name="delete").click()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    said(page, "Observation is deleted.")
    assert page.locator("#corrected.notice").count()
    page.complaints.clear()  # Chromium reports the status


def test_a_correction_made_elsewhere_is_shown(page: Any, client: Client) -> None:
    number = newest(client)["number"]
    client.patch(f"/observations/{number}", json={"name": "smew", "rank": "species"})
    page.locator(f"#observation-{number} .name", has_text="smew").wait_for()
    client.delete(f"/observations/{number}")
    page.locator(f"#observation-{number}").wait_for(state="detached")
    until(lambda: newest(client)["number"] != number)
