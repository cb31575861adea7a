"""For mkdocs: pages that are files of the repository's root, links that lead out of docs/, patterns, and doctests.

Links are written for readers of the repository. On the site, a link to a file that the site has leads to its page; of a
link to any other file outside docs/ the text remains. A pattern in the navigation stands for the pages that it matches.
"""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path
from typing import Any

import griffe

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PAGES = {ROOT / "CHANGELOG.md": DOCS / "changelog.md", ROOT / "CONTRIBUTING.md": DOCS / "contributing.md"}
LINK = re.compile(r"\[(?P<text>[^\]\[]*)\]\((?P<file>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
DOCTEST = re.compile(r"(?:^ *>>> .*\n?(?:^ *\S.*\n?)*)+", re.MULTILINE)


def on_config(config: Any) -> Any:
    config["nav"] = [expanded(entry) for entry in config["nav"]]
    return config


def expanded(entry: Any) -> Any:
    """A navigation entry with the pages of its patterns, such as `results/*.md`; the index of a folder comes first."""
    if not isinstance(entry, dict):
        return entry
    (title, content), *_ = entry.items()
    if not isinstance(content, list):
        return entry
    pages: list[Any] = []
    for inner in content:
        if isinstance(inner, str) and "*" in inner:
            found = sorted(DOCS.glob(inner), key=lambda page: (page.name != "index.md", page.name))
            pages += [page.relative_to(DOCS).as_posix() for page in found]
        else:
            pages.append(expanded(inner))
    return {title: pages}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = DOCS / page.file.src_uri
    written = next((file for file, shown in PAGES.items() if shown == place), place)
    if written != place:
        markdown = written.read_text(encoding="utf-8")

    def moved(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(written.parent / link["file"]))
        if not target.exists() or (written == place and target.is_relative_to(DOCS)):
            return link[0]
        target = PAGES.get(target, target)
        if not target.is_relative_to(DOCS):
            return link["text"]
        return f"[{link['text']}]({os.path.relpath(target, place.parent)}{link['anchor'] or ''})"

    return LINK.sub(moved, markdown)


class Doctests(griffe.Extension):
    """Examples of docstrings as code. Markdown would make quotes of lines that start with `>>>`."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            plain = re.sub(r"^Example:\n", "\n", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = DOCTEST.sub(_fenced, plain)


def _fenced(example: re.Match[str]) -> str:
    return f"\n```pycon\n{textwrap.dedent(example[0]).rstrip()}\n```\n"
