"""Puts a page together and writes it."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from dhocl.checkpoint import write_atomically
from dhocl.errors import InputError
from dhocl.record import Record
from dhocl.report.compare import compare
from dhocl.report.reading import written
from dhocl.report.single import single


def write_report(runs: list[Path], page: Path) -> Path:
    """One file with everything in it: a run in depth, or several compared."""
    if not runs:
        raise InputError("there is no run to report on: name at least one folder")
    if page.is_dir():
        raise InputError(f"can not write the page to {page}, which is a folder: name a file in it")
    records = [Record(folder) for folder in runs]
    if len(records) == 1:
        html = templates().get_template("run.html").render(single(records[0]))
    else:
        html = templates().get_template("compare.html").render(compare(records))
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page, html.encode())
    return page


def templates() -> Environment:
    """Everything is escaped, for names of classes are data and may be anything."""
    environment = Environment(
        loader=PackageLoader("dhocl", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["written"] = written
    return environment
