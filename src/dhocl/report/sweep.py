"""Write the report of a sweep: a page, tables and figures."""

from __future__ import annotations

import json
from pathlib import Path

from dhocl.core.errors import InputError
from dhocl.core.files import write_atomically
from dhocl.experiment.evaluate import POPULATIONS
from dhocl.experiment.recipes import Growth
from dhocl.experiment.sweep import SweepFolder
from dhocl.report import exhibits
from dhocl.report.page import templates, write_report
from dhocl.report.section import Section, section
from dhocl.report.tables import as_csv, as_latex, as_markdown, gap_text, paired_note, shown, spread


def write_sweep_report(folder: Path) -> Path:
    """Write index.html, tables/ (Markdown, CSV, LaTeX) and figures/ (SVG, PNG) to the folder of a sweep.

    Args:
        folder: of the sweep.

    Returns:
        The path of index.html.
    """
    sweep = SweepFolder(folder)
    if not sweep.recipes:
        raise InputError(f"{folder} has no sweep: make one with `dhocl sweep RECIPE --out {folder}`")
    sections = [section(sweep, name) for name in sweep.recipes]
    helpers = {"shown": shown, "spread": spread, "gap_text": gap_text, "paired_note": paired_note}
    html = (
        templates()
        .get_template("sweep.html")
        .render(
            sections=sections,
            pages={part.name: _pages(sweep, part) for part in sections},
            populations=POPULATIONS,
            **helpers,
        )
    )
    for part in sections:
        _write_files(folder, part)
    page = folder / "index.html"
    write_atomically(page, html.encode())
    return page


def _pages(sweep: SweepFolder, part: Section) -> dict[str, str]:
    """Panel -> path of the page of its first run, which shows the growth of the tree."""
    pages: dict[str, str] = {}
    if not any(isinstance(exhibit, Growth) for exhibit in part.recipe.exhibits):
        return pages
    for entry in part.entries:
        record = sweep.record(entry)
        if record.finished and entry.panel not in pages:
            page = write_report([record.folder], record.folder / "report.html")
            pages[entry.panel] = page.relative_to(sweep.folder).as_posix()
    return pages


def _write_files(folder: Path, part: Section) -> None:
    (folder / "figures").mkdir(exist_ok=True)
    for table in part.tables:
        base = file_name(f"{part.name}-{table.title}")
        for suffix, text in (("md", as_markdown(table)), ("csv", as_csv(table)), ("tex", as_latex(table))):
            write_atomically(folder / "tables" / f"{base}.{suffix}", text.encode())
    if part.statistics:
        text = json.dumps(part.statistics, indent=1) + "\n"
        write_atomically(folder / "tables" / f"{part.name}.json", text.encode())
    for picture in part.pictures:
        figure = exhibits.with_legend(picture)
        for suffix in ("svg", "png"):
            figure.savefig(
                folder / "figures" / f"{file_name(f'{part.name}-{picture.name}')}.{suffix}", dpi=200, facecolor="white"
            )


def file_name(name: str) -> str:
    """
    >>> file_name("groups-cifar100, 10 groups")
    'groups-cifar100-10-groups'
    """
    return "-".join("".join(letter if letter.isalnum() or letter in "_." else " " for letter in name).split())
