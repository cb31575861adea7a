"""The folder of a sweep: its recipes and their runs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dhocl.core.errors import InputError
from dhocl.core.files import write_atomically
from dhocl.core.outside import short
from dhocl.experiment.config import RunConfig
from dhocl.experiment.recipes import RECIPES, UNNAMED, GridCell, Scale, find_recipe
from dhocl.experiment.record import Record


class Job(NamedTuple):
    """A run to execute, and its folder."""

    config: RunConfig
    folder: Path

    @property
    def finished(self) -> bool:
        return Record(self.folder).finished


class PlannedRun(NamedTuple):
    """A run in the grid of a recipe. Several recipes may share a run."""

    panel: str
    row: str
    seed: int
    run: str


Statistic = dict[str, Any]  # of a data set


class SweepFolder:
    """The folder of a sweep.

    | file                          | content                                                         |
    |-------------------------------|-----------------------------------------------------------------|
    | recipes/NAME.json             | the runs of a recipe, and the scale                             |
    | runs/                         | folders of runs; FAILED in one has the traceback of its failure |
    | index.html, tables/, figures/ | written by `dhocl report`                                       |
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plan(
        self,
        recipe: str,
        scale: Scale,
        seeds: Sequence[int],
        data: Path | None,
        backbones: Sequence[str] = (),
        statistics: Sequence[Statistic] = (),
    ) -> list[Job]:
        """Write the plan of a recipe. Returns its runs, without duplicates."""
        cells = cells_of(recipe, scale, backbones)
        jobs: dict[str, Job] = {}
        entries = []
        for place, seed in enumerate(seeds):
            for cell in cells:
                if cell.seeds is not None and place >= cell.seeds:
                    continue
                config = dataclasses.replace(cell.config, seed=seed, data=_place(cell.config, data))
                name = run_name(config)
                jobs[name] = Job(config, self.folder / "runs" / name)
                entries.append(PlannedRun(cell.panel, cell.row, seed, name))
        content = {"scale": scale, "entries": [entry._asdict() for entry in entries], "statistics": list(statistics)}
        write_atomically(self.folder / "recipes" / f"{recipe}.json", (json.dumps(content, indent=1) + "\n").encode())
        return list(jobs.values())

    @property
    def recipes(self) -> list[str]:
        """The recipes planned in this folder, in the order of RECIPES."""
        return [name for name in RECIPES if (self.folder / "recipes" / f"{name}.json").exists()]

    def read(self, recipe: str) -> tuple[Scale, list[PlannedRun], list[Statistic]]:
        path = self.folder / "recipes" / f"{recipe}.json"
        try:
            content: dict[str, Any] = json.loads(path.read_text())
            entries = [PlannedRun(**entry) for entry in content["entries"]]
            return Scale(content["scale"]), entries, content["statistics"]
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{path} is damaged: start the sweep again; finished runs are kept") from None

    def record(self, entry: PlannedRun) -> Record:
        return Record(self.folder / "runs" / entry.run)


def cells_of(recipe: str, scale: Scale, backbones: Sequence[str]) -> list[GridCell]:
    """The grid of a recipe. A row that does not name its backbone is repeated for each of `backbones`."""
    found = []
    for cell in find_recipe(recipe).cells(scale):
        if cell.config.backbone != UNNAMED:
            found.append(cell)
            continue
        for name in backbones:
            row = cell.row.format(backbone=Path(short(name)).name)
            found.append(cell._replace(row=row, config=dataclasses.replace(cell.config, backbone=name)))
    return found


def run_name(config: RunConfig) -> str:
    """A readable name and a hash of the configuration, without the location of the data.

    >>> run_name(RunConfig(method="er", seed=2)) == run_name(RunConfig(method="er", seed=2, data="elsewhere"))
    True
    """
    defaults = RunConfig().to_json() | {"data": config.data}
    # Defaults are left out, so that a new field does not change the names of old runs.
    chosen = {name: value for name, value in config.to_json().items() if value != defaults[name]}
    digest = hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]
    return f"{short(config.dataset)}-{short(config.method)}-{config.seed}-{digest}"


def _place(config: RunConfig, data: Path | None) -> str | None:
    return None if data is None or config.dataset == "glyphs" else str(data.absolute())
