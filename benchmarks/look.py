"""Look at every page in Chromium: screenshots at two widths, light and dark, findings of axe-core, and the Tab key.

python benchmarks/look.py OUT [--axe axe.min.js] [--data DIR] [--quick] [--docs docs/images]

axe.min.js comes with `npm pack axe-core`. The exit code is 1 with serious or critical findings, or if the Tab key does
not reach all controls or does not show where it is. `--docs` also writes the pictures of the documentation, which show
birds of `--data`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from dhocl import RunConfig, run_to_end
from dhocl.report import write_report

HERE = Path(__file__).parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (1300, 390)
SCHEMES = ("light", "dark")
PICTURES = {"service": 1300, "labelling": 900, "run": 1400, "compare": 1000}  # of the docs: heights in pixels
GRAVE = ("serious", "critical")
TABS = 1000  # presses of the Tab key, at most

FOCUSED = """() => {
    const here = document.activeElement, style = getComputedStyle(here);
    if (here === document.body) return "";  // between the last control and the first
    if (here.dataset.tabbed) return null;
    here.dataset.tabbed = true;
    const isOutlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
    return isOutlined || style.boxShadow !== "none" ? "" : here.outerHTML.slice(0, 100);
}"""
PASSED_OVER = """() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
    .filter(each => each.tabIndex >= 0 && !each.disabled && !(each.type === "radio" && !each.checked))
    .filter(each => !each.dataset.tabbed && each.checkVisibility({ visibilityProperty: true }))
    .map(each => each.outerHTML.slice(0, 100))"""


@contextmanager
def birds(folder: Path, data: Path | None, quick: bool) -> Iterator[tuple[str, Path]]:
    """The service of examples/biodiversity when it has learned everything: its address, and an image."""
    options = ["--out", folder, "--port", 0, "--observations", 60 if quick else 272]
    options += ["--data", data] if data else []
    options += ["--backbone", "tiny"] if quick else []
    command = [sys.executable, HERE.parent / "examples" / "biodiversity" / "run.py", *options]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        found = next(match for line in process.stdout if (match := re.search(r"The page stays at (\S+)", line)))
        yield found[1], sorted(folder.rglob("*.jpg"))[5]
    finally:
        process.terminate()
        process.wait()


def reports(folder: Path, data: Path | None, quick: bool) -> dict[str, Path]:
    """The report of a run, and the comparison of two methods with three seeds each."""
    chosen: dict[str, Any] = {"samples": 600, "test_samples": 300, "groups": 4, "eval_every": 100}
    chosen |= {"backbone": "tiny", "image_size": 32} if quick else {"image_size": 64}
    chosen |= {"dataset": "cub200", "data": data} if data else {}
    runs = []
    for method in ("amber", "ncm"):
        for seed in range(3):
            runs.append(folder / f"{method}-{seed}")
            run_to_end(RunConfig(method=method, seed=seed, **chosen), runs[-1])
            write_report([runs[-1]], runs[-1] / "report.html")
            print(f"{len(runs)} of 6 runs", flush=True)
    return {"run": runs[0] / "report.html", "compare": write_report(runs, folder / "compare.html")}


def evaluation(folder: Path, quick: bool) -> Path:
    """The page of `dhocl evaluate` for the drawn birds of examples/photographs.py."""
    photos, model = folder / "photos", folder / "garden"
    small = ["--backbone", "tiny", "--image-size", 32] if quick else []
    dhocl = [sys.executable, "-c", "from dhocl.cli import main; main()"]
    for command in (
        [sys.executable, HERE.parent / "examples" / "photographs.py", photos],
        [*dhocl, "learn", model, "--data", photos, "--quiet", *small],
        [*dhocl, "evaluate", model, "--data", photos],
    ):
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    return model / "evaluation.html"


def predicted(page: Page, image: Path) -> None:
    """With a prediction, and a class of the tree chosen."""
    page.wait_for_selector("#state.live")
    page.locator("#file").set_input_files(image)
    page.wait_for_selector("#path li .share")
    page.locator("#tree .row").nth(2).click()
    page.locator("#recent img").first.wait_for()
    page.locator("#confused tr").first.wait_for()


def labelling(page: Page, image: Path) -> None:
    """With images to label, and the form for another name open."""
    page.wait_for_selector("#state.live")
    page.locator("#pool-files").set_input_files(sorted(image.parent.glob("*.jpg"))[:8])
    page.locator("#pool-said", has_text="added").wait_for()
    page.locator("#subject").wait_for()
    page.locator("#label-path li").first.wait_for()
    if not page.locator("#label-naming form").count():
        page.keyboard.press("c")


def findings(page: Page, axe: Path) -> list[str]:
    page.evaluate(axe.read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate("axe.run()")
    return [
        f"{rule['impact']}: {rule['id']}: {rule['help']}: {' '.join(map(str, node['target']))}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


def by_keyboard(page: Page) -> list[str]:
    """What the Tab key passes over, and where it does not show that it is there."""
    page.evaluate("document.activeElement.blur()")
    found = []
    for _ in range(TABS):
        page.keyboard.press("Tab")
        unseen = page.evaluate(FOCUSED)
        if unseen is None:
            break
        found += [f"serious: the focus is not shown: {unseen}"] if unseen else []
    return found + [f"serious: not reached by the Tab key: {each}" for each in page.evaluate(PASSED_OVER)]


def look(browser: Browser, name: str, address: str, out: Path, axe: Path | None, image: Path) -> int:
    """Number of serious findings."""
    grave = 0
    for width in WIDTHS:
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme=scheme,  # type: ignore[arg-type]
                bypass_csp=True,  # of the page, which would not run axe
            )
            page = context.new_page()
            page.goto(address)
            if name == "service":
                predicted(page, image)
            if name == "labelling":
                labelling(page, image)
            page.screenshot(path=out / f"{name}-{width}-{scheme}.png", full_page=True)
            found = (findings(page, axe) if axe else []) + by_keyboard(page)
            for line in sorted(set(found)):
                print(f"{name}, {width} px, {scheme}: {line}")
            grave += sum(line.startswith(GRAVE) for line in found)
            context.close()
    return grave


def picture(screenshot: Path, file: Path, height: int) -> None:
    """The top of a screenshot as a small file. Not in few colours: those of lines would change."""
    with Image.open(screenshot) as whole:
        whole.convert("RGB").crop((0, 0, whole.width, min(height, whole.height))).save(file, quality=80, method=6)


def main(
    out: Annotated[Path, typer.Argument(help="A new folder.")],
    axe: Annotated[Path | None, typer.Option(help="axe.min.js of the npm package axe-core.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with CUB-200-2011; without one, letters.")] = None,
    quick: Annotated[bool, typer.Option(help="A small network and few samples.")] = False,
    docs: Annotated[Path | None, typer.Option(help="Folder for the pictures of the documentation.")] = None,
) -> None:
    out.mkdir(parents=True)
    found = reports(out / "runs", data, quick) | {"evaluation": evaluation(out, quick)}
    pages = {name: page.resolve().as_uri() for name, page in found.items()}
    with birds(out / "birds", data, quick) as (address, image), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        pages |= {"service": address, "labelling": f"{address}/#label", "docs": f"{address}/docs"}
        grave = sum(look(browser, name, page, out, axe, image) for name, page in pages.items())
        browser.close()
    if docs:
        for name, height in PICTURES.items():
            picture(out / f"{name}-1300-light.png", docs / f"{name}.webp", height)
    print(f"{len(pages)} pages, {grave} serious findings{'' if axe else ' by keyboard'}")
    raise typer.Exit(grave > 0)


if __name__ == "__main__":
    typer.run(main)
