"""The page at `/docs`, in a real browser, of a real service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.helpers.browsing import launched, needs_chromium, watched
from tests.helpers.serving import NEW, started

pytestmark = needs_chromium

CONTRAST = """element => {
    const parts = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = colour => parts(colour).slice(0, 3).map(value => value / 255)
        .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
    let ground = element;
    while (parts(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
    const both = [light(getComputedStyle(element).color), light(getComputedStyle(ground).backgroundColor)].sort();
    return (both[1] + 0.05) / (both[0] + 0.05);
}"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("docs")
    (folder / "token").write_text("a-long-enough-token")
    with started("--model", folder / "m", *NEW, "--token-file", folder / "token") as (_, client):
        yield client


@pytest.fixture(scope="module", params=[(1280, "light"), (390, "dark")], ids=["wide", "phone, dark"])
def page(request: pytest.FixtureRequest, client: httpx.Client) -> Iterator[Any]:
    width, scheme = request.param
    with launched() as browser:
        page = watched(browser, width, color_scheme=scheme)
        page.on(
            "request", lambda asked: asked.url.startswith(str(client.base_url)) or page.complaints.append(asked.url)
        )
        page.goto(f"{client.base_url}/docs")
        page.locator("#operations section").first.wait_for()
        page.scheme = scheme
        yield page
        page.close()


def section(page: Any, name: str) -> Any:
    return page.get_by_role("region", name=name, exact=True)


def test_every_request_is_described(page: Any, client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    listed = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert set(page.locator("#operations h2").all_text_contents()) == listed
    assert set(page.locator("#contents a").all_text_contents()) == listed
    for path, methods in paths.items():
        for method, operation in methods.items():
            text = section(page, f"{method.upper()} {path}").text_content()
            assert operation["description"].replace("`", "") in text
            assert all(status in text for status in operation["responses"])
            assert all(parameter["name"] in text for parameter in operation.get("parameters", []))
            assert ("Needs the token" in text) == ("security" in operation)


def test_parameters_bodies_and_responses(page: Any) -> None:
    predict = section(page, "POST /predict").text_content()
    assert "confidence number (from 0, to 1, default 0), optional in the query" in predict
    assert "image list of string (binary)" in predict
    assert "answer object or null – The deepest node" in predict
    observe = section(page, "POST /observations").text_content()
    assert "multipart/form-data" in observe
    assert "observations list of object" in observe
    assert "name string (at most 200 characters)" in observe
    revise = section(page, "POST /taxonomy")
    assert "application/json one of 5 forms" in revise.text_content()
    merge = revise.locator("details", has_text="Merge a class into another")
    merge.locator("summary").click()
    assert merge.get_by_text("into", exact=True).is_visible()
    assert 'kind "merge"' in merge.text_content()


def test_an_error_unfolds_by_keyboard(page: Any) -> None:
    refusal = section(page, "GET /taxonomy").locator("details", has_text="Too Many Requests")
    refusal.locator("summary").focus()
    page.keyboard.press("Enter")
    assert refusal.get_by_text("detail", exact=True).is_visible()


def test_it_fits_and_can_be_read(page: Any) -> None:
    wide, room = page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
    assert wide <= room
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 29)"
    assert dark == (page.scheme == "dark")
    for part in (".method", ".token", ".soft", "#operations code", "#contents a"):
        assert page.locator(part).first.evaluate(CONTRAST) >= 4.5, part


def test_nothing_is_loaded_from_elsewhere(page: Any, client: httpx.Client) -> None:
    policy = client.get("/docs").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.complaints == []
