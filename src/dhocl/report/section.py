"""The results of a recipe in a sweep."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

from dhocl.experiment.recipes import RECIPES, Recipe, Scale
from dhocl.experiment.record import Record
from dhocl.experiment.sweep import FAILED, Call, PlannedRun, SweepFolder
from dhocl.report import exhibits
from dhocl.report.comparisons import Picture
from dhocl.report.reading import Run, read
from dhocl.report.tables import Table

LEFT_OUT = "The results of the paper are left out: they are of another setting, the scale `paper`."


class Section(NamedTuple):
    name: str
    recipe: Recipe
    scale: Scale
    entries: list[PlannedRun]
    runs: dict[str, dict[str, list[Run]]]  # panel -> planned row -> finished runs
    failed: dict[str, str]  # run -> the last line of its traceback
    tables: list[Table]
    pictures: list[Picture]
    statistics: list[dict[str, Any]]
    calls: list[Call]
    folder: str  # its name

    @property
    def seeds(self) -> list[int]:
        return sorted({entry.seed for entry in self.entries})

    @property
    def planned(self) -> int:
        return len(self.entries)

    @property
    def done(self) -> int:
        return sum(len(found) for rows in self.runs.values() for found in rows.values())

    @property
    def unfinished(self) -> str:
        """The rows that are left out because none of their runs is finished, as a sentence; empty if there are none."""
        missing = {panel: [row for row, found in rows.items() if not found] for panel, rows in self.runs.items()}
        named = [
            f"{panel}: all {len(rows)}" if len(rows) == len(self.runs[panel]) else f"{panel}: {', '.join(rows)}"
            for panel, rows in missing.items()
            if rows
        ]
        count = sum(map(len, missing.values()))
        return f"{count} row{'s have' if count > 1 else ' has'} no finished run. {'; '.join(named)}." if named else ""

    @property
    def command(self) -> str:
        """One line per call."""
        return "\n".join(sweep_command([self.name], self.scale, call, self.folder) for call in self.calls)

    @property
    def left_out(self) -> str:
        """A sentence, if the paper has results that are not shown."""
        return LEFT_OUT if self.recipe.printed and self.scale is not Scale.paper else ""


def sweep_command(recipes: list[str], scale: Scale, call: Call, folder: str) -> str:
    """The command of a call.

    >>> sweep_command(["main", "best"], Scale.full, Call(methods=("er",), data="DIR", seeds=(1, 2)), "full")
    'dhocl sweep main best --scale full --data DIR --method er --seeds 2 --first-seed 1'
    """
    words = ["dhocl", "sweep", *recipes, "--scale", scale.value]
    words += ["--data", call.data] if call.data else []
    for flag, names in (("--dataset", call.datasets), ("--method", call.methods), ("--backbone", call.backbones)):
        words += [word for name in names for word in (flag, name)]
    words += ["--seeds", str(len(call.seeds))] if call.seeds else []
    words += ["--first-seed", str(call.seeds[0])] if call.seeds and call.seeds[0] else []
    words += ["--out", f"runs/{folder}"] if folder != scale else []
    return shlex.join(words)


def section(sweep: SweepFolder, name: str) -> Section:
    """Read the runs of a recipe. The results of the paper stand beside them only at its own scale."""
    scale, entries, statistics = sweep.read(name)
    recipe = RECIPES[name]
    runs: dict[str, dict[str, list[Run]]] = {}
    records: dict[str, dict[str, Record]] = {}
    for entry in entries:
        found = runs.setdefault(entry.panel, {}).setdefault(entry.row, [])
        record = sweep.record(entry)
        if record.finished:
            found.append(read(record))
            records.setdefault(entry.panel, {}).setdefault(entry.row, record)
    rows = {panel: {row: found for row, found in own.items() if found} for panel, own in runs.items()}
    there = {panel: own for panel, own in rows.items() if own}
    return Section(
        name,
        recipe,
        scale,
        entries,
        runs,
        {entry.run: problem for entry in entries if (problem := _problem(sweep, entry))},
        list(exhibits.tables(recipe, there, scale is Scale.paper)),
        list(exhibits.pictures(recipe, there, records)),
        statistics,
        sweep.calls(name),
        sweep.folder.absolute().name,
    )


def _problem(sweep: SweepFolder, entry: PlannedRun) -> str:
    path = sweep.record(entry).folder / FAILED
    return next(reversed(path.read_text().strip().splitlines()), "no message") if path.exists() else ""
