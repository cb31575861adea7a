"""The folder of a sweep: its recipes and their runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dhocl.core.errors import InputError
from dhocl.core.files import write_atomically
from dhocl.core.outside import short
from dhocl.experiment.config import RunConfig
from dhocl.experiment.recipes import RECIPES, UNNAMED, Basis, GridCell, Scale, basis_of, find_recipe
from dhocl.experiment.record import Record
from dhocl.experiment.run import reorders
from dhocl.experiment.sweep.naming import run_name
from dhocl.experiment.sweep.plan import Call, Plan, PlannedRun, Statistic, grid_hash


class Job(NamedTuple):
    """A run to execute, and its folder."""

    config: RunConfig
    folder: Path

    @property
    def finished(self) -> bool:
        """InputError if it was finished with other defaults."""
        record = Record(self.folder)
        if record.finished:
            record.check_defaults()
        return record.finished


class SweepFolder:
    """The folder of a sweep.

    | file                          | content                                                         |
    |-------------------------------|-----------------------------------------------------------------|
    | recipes/NAME.json             | what a recipe was asked for, with its runs, and the scale       |
    | runs/                         | folders of runs; FAILED in one has the traceback of its failure |
    | index.html, tables/, figures/ | written by `dhocl report`                                       |
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plan(
        self,
        recipe: str,
        scale: Scale,
        cells: Sequence[GridCell],
        call: Call,
        data: Path | None,
        statistics: Sequence[Statistic] = (),
    ) -> list[Job]:
        """Add the runs of a call to those of earlier calls. Returns the runs of this call, without duplicates.

        Earlier calls are forgotten if the grid of the recipe has changed since.
        """
        plan = self._continued(recipe, scale)
        seeds: dict[tuple[str, str], set[int]] = {}  # of a row
        for entry in plan.entries:
            seeds.setdefault((entry.panel, entry.row), set()).add(entry.seed)
        jobs: dict[str, Job] = {}
        entries = []
        for seed in call.seeds:
            for cell in cells:
                known = seeds.setdefault((cell.panel, cell.row), set())
                if cell.seeds is not None and len(known | {seed}) > cell.seeds:
                    continue
                known.add(seed)
                config = dataclasses.replace(cell.config, seed=seed, data=_place(cell.config, data))
                name = run_name(config)
                jobs[name] = Job(config, self.folder / "runs" / name)
                entries.append(PlannedRun(cell.panel, cell.row, seed, name))
        content = plan.with_call(call, entries, statistics).to_json()
        write_atomically(self._file(recipe), (json.dumps(content, indent=1) + "\n").encode())
        return list(jobs.values())

    def _continued(self, recipe: str, scale: Scale) -> Plan:
        """The plan of earlier calls, empty if it is of another grid."""
        new = Plan(scale, grid_hash(recipe, scale), {}, [])
        try:
            plan = self._plan(recipe)
        except InputError:
            return new
        return plan if (plan.scale, plan.grid) == (scale, new.grid) else new

    @property
    def recipes(self) -> list[str]:
        """The recipes planned in this folder, in the order of RECIPES."""
        return [name for name in RECIPES if self._file(name).exists()]

    def read(self, recipe: str) -> tuple[Scale, list[PlannedRun], list[Statistic]]:
        """The scale, the runs of all calls in the order of the grid and by seed, and the statistics of data sets."""
        plan = self._plan(recipe)
        known = {entry.place: entry for entry in plan.entries}
        backbones = [name for call in plan.calls for name in call.backbones]
        grid = cells_of(recipe, basis_of(plan.scale), backbones)
        panels = _ranks([cell.panel for cell in grid], [panel for panel, _, _ in known])
        rows = _ranks([cell.row for cell in grid], [row for _, row, _ in known])
        ordered = sorted(known.values(), key=lambda entry: (panels[entry.panel], rows[entry.row], entry.seed))
        return plan.scale, ordered, plan.statistics

    def calls(self, recipe: str) -> list[Call]:
        """What the recipe was asked for."""
        return list(self._plan(recipe).calls)

    def record(self, entry: PlannedRun) -> Record:
        return Record(self.folder / "runs" / entry.run)

    def _file(self, recipe: str) -> Path:
        return self.folder / "recipes" / f"{recipe}.json"

    def _plan(self, recipe: str) -> Plan:
        path = self._file(recipe)
        try:
            return Plan.from_json(json.loads(path.read_text()))
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{path} can not be read: start the sweep again; finished runs are kept") from None


def cells_of(recipe: str, basis: Basis, backbones: Sequence[str]) -> list[GridCell]:
    """The grid of a recipe. A row that does not name its backbone is repeated for each of `backbones`.

    Rows that a stream with an order of its own can not have are left out.
    """
    found = []
    for cell in find_recipe(recipe).grid(basis):
        if basis.given and reorders(cell.config):
            continue
        if cell.config.backbone != UNNAMED:
            found.append(cell)
            continue
        for name in backbones:
            row = cell.row.format(backbone=Path(short(name)).name)
            found.append(cell._replace(row=row, config=dataclasses.replace(cell.config, backbone=name)))
    return found


def _ranks(*names: Sequence[str]) -> dict[str, int]:
    return {name: rank for rank, name in enumerate(dict.fromkeys(name for part in names for name in part))}


def _place(config: RunConfig, data: Path | None) -> str | None:
    return None if data is None or config.dataset == "glyphs" else str(data.absolute())
