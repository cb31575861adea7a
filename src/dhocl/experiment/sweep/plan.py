"""What a recipe was asked for in the folder of a sweep, and its runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from dhocl.experiment.recipes import Scale, find_recipe
from dhocl.experiment.sweep.naming import run_name


class PlannedRun(NamedTuple):
    """A run in the grid of a recipe. Several recipes may share a run."""

    panel: str
    row: str
    seed: int
    run: str

    @property
    def place(self) -> tuple[str, str, int]:
        return self.panel, self.row, self.seed


class Call(NamedTuple):
    """What a recipe was asked for in one call of `dhocl sweep`, the same on every machine."""

    datasets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    data: str | None = None
    seeds: tuple[int, ...] = ()  # one after the other


Statistic = dict[str, Any]  # of a data set


class Plan(NamedTuple):
    """The runs of a recipe in a folder, by the calls that asked for them. Calls may share runs."""

    scale: Scale
    grid: str  # see `grid_hash`
    calls: dict[Call, list[PlannedRun]]
    statistics: list[Statistic]

    @property
    def entries(self) -> list[PlannedRun]:
        return [entry for entries in self.calls.values() for entry in entries]

    def with_call(self, call: Call, entries: list[PlannedRun], statistics: Sequence[Statistic]) -> Plan:
        """Without calls whose runs another one includes. A call without runs asked for statistics."""
        calls, places = self.calls, {entry.place for entry in entries}
        if not entries or not any(set(entries) <= set(old) for old in calls.values()):
            kept = {asked: old for asked, old in calls.items() if not old or {entry.place for entry in old} - places}
            calls = kept | {call: entries}
        known = {statistic["name"]: statistic for statistic in (*self.statistics, *statistics)}
        return self._replace(calls=calls, statistics=list(known.values()))

    def to_json(self) -> dict[str, Any]:
        calls = [
            call._asdict() | {"entries": [entry._asdict() for entry in entries]} for call, entries in self.calls.items()
        ]
        return self._asdict() | {"calls": calls}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Plan:
        calls = {}
        for stored in content["calls"]:
            entries = [PlannedRun(**entry) for entry in stored.pop("entries")]
            asked: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
            }
            calls[Call(**asked)] = entries
        return cls(Scale(content["scale"]), content["grid"], calls, content["statistics"])


def grid_hash(recipe: str, scale: Scale) -> str:
    """Changes with the rows of a recipe, their settings and their seeds."""
    grid = [(cell.panel, cell.row, run_name(cell.config), cell.seeds) for cell in find_recipe(recipe).cells(scale)]
    return hashlib.sha256(json.dumps(grid).encode()).hexdigest()[:8]
