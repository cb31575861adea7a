"""The folder of a sweep: which runs its recipes ask for, and the runs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dhocl.checkpoint import write_atomically
from dhocl.config import RunConfig
from dhocl.errors import InputError
from dhocl.recipes import RECIPES, UNNAMED, Cell, Scale, find_recipe
from dhocl.record import Record


class Job(NamedTuple):
    """A run to make. `folder` is where it is kept, and its name."""

    config: RunConfig
    folder: Path

    @property
    def finished(self) -> bool:
        return Record(self.folder).finished


class Entry(NamedTuple):
    """A run as a recipe uses it; several recipes may use one."""

    panel: str
    row: str
    seed: int
    run: str


Statistic = dict[str, Any]  # what there is to say of a data set


class SweepFolder:
    """
    recipes/NAME.json   the runs that a recipe asks for, and the scale
    runs/               their folders, shared by the recipes; FAILED in one holds the traceback of its last attempt
    index.html, tables/, figures/   what `dhocl report` makes of them
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plan(
        self,
        recipe: str,
        scale: Scale,
        seeds: int,
        data: Path | None,
        backbone: str | None = None,
        statistics: Sequence[Statistic] = (),
    ) -> list[Job]:
        """Write down what a recipe asks for; its runs, each once."""
        cells = cells_of(recipe, scale, backbone)
        jobs: dict[str, Job] = {}
        entries = []
        for seed in range(seeds):
            for cell in cells:
                config = dataclasses.replace(cell.config, seed=seed, data=_place(cell.config, data))
                name = run_name(config)
                jobs[name] = Job(config, self.folder / "runs" / name)
                entries.append(Entry(cell.panel, cell.row, seed, name))
        content = {"scale": scale, "entries": [entry._asdict() for entry in entries], "statistics": list(statistics)}
        (self.folder / "recipes").mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / "recipes" / f"{recipe}.json", (json.dumps(content, indent=1) + "\n").encode())
        return list(jobs.values())

    @property
    def recipes(self) -> list[str]:
        """Those that were planned here, in the order of the catalogue."""
        return [name for name in RECIPES if (self.folder / "recipes" / f"{name}.json").exists()]

    def read(self, recipe: str) -> tuple[Scale, list[Entry], list[Statistic]]:
        path = self.folder / "recipes" / f"{recipe}.json"
        try:
            content: dict[str, Any] = json.loads(path.read_text())
            entries = [Entry(**entry) for entry in content["entries"]]
            return Scale(content["scale"]), entries, content["statistics"]
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{path} is damaged: start the sweep again, its finished runs are kept") from None

    def record(self, entry: Entry) -> Record:
        return Record(self.folder / "runs" / entry.run)


def cells_of(recipe: str, scale: Scale, backbone: str | None) -> list[Cell]:
    """The grid of a recipe, with `backbone` where it leaves the backbone to the user."""
    return [
        cell._replace(config=dataclasses.replace(cell.config, backbone=backbone))
        if backbone and cell.config.backbone == UNNAMED
        else cell
        for cell in find_recipe(recipe).cells(scale)
    ]


def run_name(config: RunConfig) -> str:
    """What a person would call it, and a hash of what decides it; where its data lie does not.

    >>> run_name(RunConfig(method="er", seed=2)) == run_name(RunConfig(method="er", seed=2, data="elsewhere"))
    True
    """
    usual = RunConfig().to_json() | {"data": config.data}
    decisive = {
        name: value for name, value in config.to_json().items() if value != usual[name]
    }  # new fields change none
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:8]
    return f"{config.dataset}-{config.method}-{config.seed}-{digest}"


def _place(config: RunConfig, data: Path | None) -> str | None:
    return None if data is None or config.dataset == "glyphs" else str(data.absolute())
