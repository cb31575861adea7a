"""The documents: tables that can be read, links that lead somewhere, examples and drawings that are true."""

from __future__ import annotations

import dataclasses
import doctest
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dhocl.methods.amber import AmberSettings
from tests.test_architecture import MAY_IMPORT

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
LONGEST = 25  # words of a cell
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"\[[^\]\[]*\]\(([^)\s]+)\)")
MISSING = re.compile(r"[^\w\- ]")


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def rows(text: str) -> list[list[str]]:
    """The cells of all tables."""
    lines = [line.strip() for line in text.splitlines() if line.lstrip().startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as the site makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", MISSING.sub("", heading.lower()).strip()) for heading in headings}


def pages(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", paths, ids=lambda path: str(path.relative_to(ROOT)))


@pages(PAGES)
def test_no_cell_of_a_table_is_too_long(page: Path) -> None:
    long = [cell for row in rows(prose(page)) for cell in row if len(cell.split()) > LONGEST]
    assert not long


@pages(PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for link in LINK.findall(CODE.sub("", prose(page))):
        file, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert not lost


@pages([page for page in PAGES if ">>> " in page.read_text(encoding="utf-8")])
def test_doctests_of_a_page(page: Path) -> None:
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert tried
    assert not failed


def test_every_page_is_in_the_navigation() -> None:
    patterns = re.findall(r"[\w/*]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = [page for pattern in patterns for page in (DOCS.glob(pattern) if "*" in pattern else [DOCS / pattern])]
    assert sorted(named) == sorted(DOCS.rglob("*.md"))


def test_the_table_of_the_architecture_is_the_one_that_is_checked() -> None:
    packages = {f"`{name}`": others for name, others in MAY_IMPORT.items()}
    table = {cells[0]: cells[2] for cells in rows(prose(DOCS / "architecture.md")) if cells[0] in packages}
    assert {name: set(others.split(", ")) - {"-"} for name, others in table.items()} == packages


def test_the_drawing_of_the_architecture_has_all_arrows_that_do_not_follow_from_others() -> None:
    below: dict[str, set[str]] = {}  # by any number of arrows
    for name, others in MAY_IMPORT.items():
        below[name] = others.union(*(below[other] for other in others))
    drawn = {element.get("id") for element in ElementTree.parse(DOCS / "images" / "architecture.svg").iter()}
    direct = {
        f"{name}-{other}"
        for name, others in MAY_IMPORT.items()
        for other in others
        if not any(other in below[between] for between in others)
    }
    assert drawn - {None, "title", "head"} == direct | MAY_IMPORT.keys()


def test_the_page_of_amber_has_its_settings_and_their_defaults() -> None:
    section = prose(DOCS / "amber.md").partition("\n## Settings\n")[2].partition("\n## ")[0]
    table = {cells[0]: cells[1] for cells in rows(section)[2:]}
    assert table == {f"`{f.name}`": str(f.default).lower() for f in dataclasses.fields(AmberSettings)}


def test_the_citation_is_of_this_version_and_license() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = dict(re.findall(r"^([\w-]+): (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE))
    assert [cited[name] for name in ("title", "version", "license")] == [
        project["name"],
        project["version"],
        project["license"]["text"],
    ]
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith(f"{cited['license']} License")
