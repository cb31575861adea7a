"""A Chromium that is there, for the tests that look at pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

DROP = """([bytes, type]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([new Uint8Array(bytes)], "image", { type }));
    document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true }));
}"""

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


@contextmanager
def launched() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def watched(browser: Any, width: int, **more: Any) -> Any:
    """A page that keeps what it complains about, in `complaints`."""
    page = browser.new_page(viewport={"width": width, "height": 900}, **more)
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    return page


def opened_at(browser: Any, client: httpx.Client, width: int = 1280, **more: Any) -> Any:
    page = watched(browser, width, **more)
    page.set_default_timeout(120_000)
    own = (str(client.base_url), "blob:", "data:")
    page.on("request", lambda asked: None if asked.url.startswith(own) else page.complaints.append(asked.url))
    page.goto(str(client.base_url))
    page.wait_for_selector("#state.live")
    return page


def names(page: Any) -> list[str]:
    """Of the rows of the tree in sight."""
    return page.locator("#tree .name").all_text_contents()


def percent(share: float) -> str:
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def drop(page: Any, image: bytes, kind: str = "image/png") -> None:
    page.evaluate(DROP, [list(image), kind])


def teach(page: Any, rank: str, name: str) -> None:
    field = page.get_by_label(f"the right {rank}")
    if not field.count():
        page.get_by_label(f"another {rank}").click()
    field.fill(name)
    field.press("Enter")
    page.get_by_text(f"Learned that this is {name} ({rank}).").wait_for()
