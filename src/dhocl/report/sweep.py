"""Write the report of a sweep: a page, tables and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from dhocl.core.errors import InputError
from dhocl.core.files import write_atomically
from dhocl.experiment.evaluate import POPULATIONS
from dhocl.experiment.recipes import RECIPES, Growth, Recipe
from dhocl.experiment.record import Record
from dhocl.experiment.sweep import FAILED, PlannedRun, SweepFolder
from dhocl.report import exhibits
from dhocl.report.comparisons import Picture
from dhocl.report.page import templates, write_report
from dhocl.report.reading import read
from dhocl.report.tables import BOLD, Table, as_csv, as_latex, as_markdown, gap_text, paired_note, shown, spread


class Section(NamedTuple):
    """The results of a recipe."""

    name: str
    recipe: Recipe
    scale: str
    seeds: list[int]
    done: int
    planned: int
    failed: dict[str, str]  # run -> the last line of its traceback
    tables: list[Table]
    pictures: list[Picture]
    statistics: list[dict[str, Any]]
    pages: dict[str, str]  # panel -> path of the page of its first run, which shows the growth of the tree


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
    helpers = {"shown": shown, "spread": spread, "gap_text": gap_text, "BOLD": BOLD, "paired_note": paired_note}
    html = templates().get_template("sweep.html").render(sections=sections, populations=POPULATIONS, **helpers)
    for part in sections:
        _write_files(folder, part)
    page = folder / "index.html"
    write_atomically(page, html.encode())
    return page


def section(sweep: SweepFolder, name: str) -> Section:
    scale, entries, statistics = sweep.read(name)
    recipe = RECIPES[name]
    runs: dict[str, dict[str, list[Any]]] = {}
    records: dict[str, dict[str, Record]] = {}
    for entry in entries:
        found = runs.setdefault(entry.panel, {}).setdefault(entry.row, [])
        record = sweep.record(entry)
        if record.finished:
            found.append(read(record))
            records.setdefault(entry.panel, {}).setdefault(entry.row, record)
    failed = {entry.run: problem for entry in entries if (problem := _problem(sweep, entry))}
    return Section(
        name,
        recipe,
        scale,
        sorted({entry.seed for entry in entries}),
        sum(sweep.record(entry).finished for entry in entries),
        len(entries),
        failed,
        list(exhibits.tables(recipe, runs)),
        list(exhibits.pictures(recipe, runs, records)),
        statistics,
        _pages(sweep, entries) if any(isinstance(exhibit, Growth) for exhibit in recipe.exhibits) else {},
    )


def _pages(sweep: SweepFolder, entries: list[PlannedRun]) -> dict[str, str]:
    pages: dict[str, str] = {}
    for entry in entries:
        record = sweep.record(entry)
        if record.finished and entry.panel not in pages:
            page = write_report([record.folder], record.folder / "report.html")
            pages[entry.panel] = page.relative_to(sweep.folder).as_posix()
    return pages


def _problem(sweep: SweepFolder, entry: PlannedRun) -> str:
    path = sweep.record(entry).folder / FAILED
    return path.read_text().strip().splitlines()[-1] if path.exists() else ""


def _write_files(folder: Path, part: Section) -> None:
    (folder / "figures").mkdir(exist_ok=True)
    for table in part.tables:
        base = _file(f"{part.name}-{table.title}")
        for suffix, text in (("md", as_markdown(table)), ("csv", as_csv(table)), ("tex", as_latex(table))):
            write_atomically(folder / "tables" / f"{base}.{suffix}", text.encode())
    if part.statistics:
        text = json.dumps(part.statistics, indent=1) + "\n"
        write_atomically(folder / "tables" / f"{part.name}.json", text.encode())
    for picture in part.pictures:
        figure = exhibits.with_legend(picture)
        for suffix in ("svg", "png"):
            figure.savefig(
                folder / "figures" / f"{_file(f'{part.name}-{picture.name}')}.{suffix}", dpi=200, facecolor="white"
            )


def _file(name: str) -> str:
    """
    >>> _file("groups-cifar100, 10 groups")
    'groups-cifar100-10-groups'
    """
    return "-".join("".join(letter if letter.isalnum() or letter in "_." else " " for letter in name).split())
