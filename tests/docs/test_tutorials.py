"""The tutorials run as they are printed.

Of a page, `python` blocks are executed in one namespace and `bash` blocks by bash, in the order of the page and in one
empty folder. A `text` block after one of them is its output. Blocks of other languages (`sh`, `console`) are not run. A
`bash` block that starts with `dhocl serve` is run in the background, on a free port.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["index.md", "photographs.md", "tutorials/ecologist.md", "tutorials/researcher.md", "tutorials/service.md"]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"  # of a service in a tutorial


class Block(NamedTuple):
    language: str
    title: str
    code: str
    line: int


def blocks(page: str) -> list[Block]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [Block(f[1], f[2], f[3], text[: f.start()].count("\n") + 1) for f in FENCE.finditer(text)]


class Reader:
    """Does what a page says."""

    def __init__(self, page: str, environment: dict[str, str]) -> None:
        self.page = page
        self.environment = environment
        self.names: dict[str, Any] = {}
        self.address = ADDRESS
        self.service: subprocess.Popen[str] | None = None

    def run(self, block: Block) -> str:
        """What it prints."""
        if block.language == "python":
            code = block.code.replace(ADDRESS, self.address)
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("\n" * block.line + code, self.page, "exec"), self.names)
            return out.getvalue()
        if block.code.startswith("dhocl serve"):
            self.serve(block.code)
            return ""
        done = subprocess.run(
            ["bash", "-e", "-c", block.code], capture_output=True, text=True, env=os.environ | self.environment
        )
        assert done.returncode == 0, f"{self.page} line {block.line}: {done.stderr}"
        return done.stdout

    def serve(self, command: str) -> None:
        self.service = subprocess.Popen(
            ["bash", "-c", f"exec {command.strip()} --port 0"],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | self.environment,
        )
        assert self.service.stdout is not None
        self.address = self.service.stdout.readline().removeprefix("dhocl: ").strip()

    def leave(self) -> None:
        if self.service is not None:
            self.service.terminate()
            self.service.wait()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples in it, and the commands `dhocl` and `python` for bash."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, words in {"dhocl": "-c 'from dhocl.cli import main; main()'", "python": ""}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (commands / name).chmod(0o755)
    here = tmp_path / "here"
    here.mkdir()
    (here / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(here)
    return commands


@pytest.fixture
def reader(request: pytest.FixtureRequest, folder: Path) -> Iterator[Reader]:
    reader = Reader(request.param, {"PATH": f"{folder}:{os.environ['PATH']}"})
    yield reader
    reader.leave()


@pytest.mark.parametrize("reader", PAGES, indirect=True, ids=PAGES)
def test_a_tutorial_does_what_it_says(reader: Reader) -> None:
    ran = None
    for block in blocks(reader.page):
        if block.language in ("python", "bash"):
            ran = reader.run(block)
        elif block.language == "text" and not block.title:
            assert ran == block.code, f"{reader.page} line {block.line}"
