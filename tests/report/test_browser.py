"""The pages in a real browser: nothing complains, every figure is seen, nothing sticks out on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dhocl.experiment import recipes
from dhocl.experiment.recipes import Bars, Curves, Growth, Holdings, Numbers, Recipe, Scale, Statistics, Structure
from dhocl.experiment.sweep import prepare, start
from dhocl.report import write_report, write_sweep_report
from tests.helpers.browsing import needs_chromium, watched
from tests.helpers.sweeps import cells

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with every kind of exhibit."""
    exhibits = (Numbers(), Curves(), Bars("AAUC"), Holdings(), Structure(), Growth(), Statistics())
    out = tmp_path_factory.mktemp("sweep")
    with pytest.MonkeyPatch.context() as patch:
        recipe = Recipe("All there is to show", "nowhere", lambda _: cells("acil", "er", "halo"), exhibits)
        patch.setitem(recipes.RECIPES, "main", recipe)
        list(start(prepare(out, ["main"], Scale.smoke, range(1), None), "local", 2, None))
        write_sweep_report(out)
    return out


@pytest.fixture(params=[1200, 390], ids=["wide", "phone"])
def page(request: pytest.FixtureRequest, browser: Any) -> Iterator[Any]:
    opened = watched(browser, request.param)
    opened.on("request", lambda asked: opened.complaints.append(asked.url) if asked.url.startswith("http") else None)
    yield opened
    opened.close()


def look(page: Any, file: Path, figures: int) -> None:
    page.goto(file.resolve().as_uri())
    drawn = page.locator("figure .plot svg")
    assert drawn.count() >= figures
    for place in range(drawn.count()):
        box = drawn.nth(place).bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 60
    wide, room = page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
    assert wide <= room, "the page is wider than the screen"
    assert page.complaints == []


def test_the_page_of_a_sweep(page: Any, folder: Path) -> None:
    look(page, folder / "index.html", figures=1 + 1 + 3 + 1 + 3)
    assert page.locator("table").count() == 2
    spot = page.locator(".spot").first
    assert "samples" in spot.locator("title").text_content()
    page.locator("a", has_text="Growth of the tree on").click()
    page.wait_for_url("**/report.html")


def test_the_page_of_a_run_and_its_tree(page: Any, folder: Path) -> None:
    run = next((folder / "runs").glob("glyphs-halo-*"))
    phone = page.viewport_size["width"] < 400
    look(page, write_report([run], run / "report.html"), figures=4)
    assert page.locator(".sheet img").count() > 3
    assert page.locator(".sheet img").first.evaluate("image => image.naturalWidth") > 10
    assert page.locator("#as-text").evaluate("details => details.open") == phone
    assert page.locator("#tree").is_visible() != phone
    assert page.locator(".branches summary").first.is_visible() == phone
    if phone:
        return
    shown = "#tree .node:visible"
    page.locator("#slider").fill("0")
    few = page.locator(shown).count()
    slider = page.locator("#slider")
    slider.fill(slider.get_attribute("max"))
    assert 0 < few < page.locator(shown).count()


def test_the_page_of_a_comparison(page: Any, folder: Path, tmp_path: Path) -> None:
    look(page, write_report(sorted((folder / "runs").iterdir()), tmp_path / "compare.html"), figures=3)
