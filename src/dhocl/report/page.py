"""Write the report of runs."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from dhocl.core.errors import InputError
from dhocl.core.files import write_atomically
from dhocl.experiment.record import Record
from dhocl.report.compare import compare
from dhocl.report.reading import written
from dhocl.report.single import single


def write_report(runs: list[Path], page: Path) -> Path:
    """Write one self-contained HTML file: the report of a run, or a comparison of several.

    Args:
        runs: folders of runs.
        page: the file to write.

    Returns:
        `page`.
    """
    if not runs:
        raise InputError("no run to report on: give at least one folder")
    if page.is_dir():
        raise InputError(f"can not write the page to {page}, which is a folder: give the name of a file")
    records = [Record(folder) for folder in runs]
    if len(records) == 1:
        html = templates().get_template("run.html").render(single(records[0]))
    else:
        html = templates().get_template("compare.html").render(compare(records, page))
    write_atomically(page, html.encode())
    return page


def templates() -> Environment:
    """With autoescape, because names of classes are untrusted."""
    environment = Environment(
        loader=PackageLoader("dhocl", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["written"] = written
    return environment
