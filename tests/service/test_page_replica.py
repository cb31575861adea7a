"""The page of a replica, in a real browser: it predicts, and offers nothing that would be refused."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.browsing import drop, launched, names, needs_chromium, opened_at
from tests.helpers.serving import examples, link, post, running, settled, started

pytestmark = needs_chromium


def test_the_page_of_a_replica_does_not_offer_to_teach(tmp_path: Path) -> None:
    with running(tmp_path / "m") as client:
        post(client, examples(40))
        link(client, "robin", "bird")
        settled(client)
    with launched() as browser, started("--follow", tmp_path / "m", "--writer", "http://birds.example") as (_, client):
        page = opened_at(browser, client)
        page.locator("#replica a", has_text="http://birds.example").wait_for()
        assert {"bird", "robin"} <= set(names(page))
        drop(page, examples(1, seed=5)[0][0])
        page.locator("#path .name").first.wait_for()
        assert page.locator("#path button").count() == 0
        page.get_by_role("treeitem", name="robin").click()
        page.keyboard.press("F2")
        page.locator("#line", has_text="robin (species)").wait_for()
        for hidden in ("#edit", "#label-mode", "#recent", "#queued", "#why", "#labelling"):
            assert not page.locator(hidden).is_visible(), hidden
        assert page.locator("#ask-title").inner_text() == "Predict"
        page.goto(f"{client.base_url}#label")
        assert page.locator("#overview").is_visible()
        assert page.complaints == []
        page.close()
