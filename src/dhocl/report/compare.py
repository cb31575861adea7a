"""The content of the page that compares runs."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import POPULATIONS
from dhocl.experiment.record import Record
from dhocl.report.figures import Key, Shown, colour
from dhocl.report.reading import DECODINGS, NUMBERS, OPEN_AAUC, Run, entry, read
from dhocl.report.svg import COLOURS, Line, Panel, plot
from dhocl.report.tables import Table, lookup, shown, spread, tabulate

CURVES = {
    "accuracy": ("Accuracy averaged over the levels", "accuracy, %"),
    "fine_accuracy": ("Accuracy at the finest level", "accuracy, %"),
    "ms": ("Mistake severity, lower is better", "height of common ancestor"),
    "open.accuracy": ("Accuracy averaged over the levels, open: all test images", "accuracy, %"),
}
COLUMNS = [*NUMBERS, OPEN_AAUC]


class RunTables(NamedTuple):
    """The metrics of each run, and their means over runs that differ in seed only."""

    decoding: str
    runs: Table
    seeds: Table


def compare(records: list[Record]) -> dict[str, Any]:
    """The variables of compare.html."""
    runs = [read(record) for record in records]
    groups = by_settings(runs)
    names = [run.config for run in runs]
    return {
        "datasets": list(dict.fromkeys(run.config.dataset for run in runs)),
        "numbers": COLUMNS,
        "shown": shown,
        "spread": spread,
        "populations": POPULATIONS,
        "tables": [_tables(decoding, prefix, runs, groups) for decoding, prefix in DECODINGS.items()],
        "unfinished": _unfinished(runs),
        "keys": [_key(place, describe(group[0].config, names, "seed")) for place, group in enumerate(groups)],
        "figures": [_overlay(value, groups) for value in CURVES],
    }


def by_settings(runs: list[Run]) -> list[list[Run]]:
    """Groups of runs that differ in seed only."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        same = json.dumps(dataclasses.replace(run.config, seed=0).to_json(), sort_keys=True)
        groups.setdefault(same, []).append(run)
    return list(groups.values())


def describe(config: RunConfig, others: list[RunConfig], *leave_out: str) -> str:
    """The method, and the fields of its config that differ from any of the others.

    >>> runs = [RunConfig(buffer=size, settings={"doubt": False}) for size in (100, 200)]
    >>> describe(runs[0], runs)
    'amber, buffer 100'
    """
    mine, all_fields = _fields(config), [_fields(other) for other in others]
    differs = [name for name in mine if name not in leave_out and any(f.get(name) != mine[name] for f in all_fields)]
    return ", ".join([config.method, *(f"{name.replace('_', ' ')} {mine[name]}" for name in differs)])


def _fields(config: RunConfig) -> dict[str, Any]:
    """All fields but the method, which every label starts with."""
    names = [field.name for field in dataclasses.fields(config) if field.name not in ("method", "settings")]
    return {name: getattr(config, name) for name in names} | config.settings


def labels(runs: list[Run]) -> list[str]:
    """A label for each run; with its folder, and then a number, if several runs have the same label."""
    configs = [run.config for run in runs]
    plain = [describe(config, configs) for config in configs]
    often = Counter(plain)
    named = [f"{p} ({run.name})" if often[p] > 1 else p for p, run in zip(plain, runs, strict=True)]
    return [f"{n} {named[:place].count(n) + 1}" if n in named[:place] else n for place, n in enumerate(named)]


def _tables(decoding: str, prefix: str, runs: list[Run], groups: list[list[Run]]) -> RunTables:
    def table(rows: Mapping[str, list[Run]], bounds: Collection[str] = ()) -> Table:
        names = [number.name for number in COLUMNS]
        summaries = {
            row: {run.key: {name: run.summary.get(entry(name, prefix)) for name in names} for run in found}
            for row, found in rows.items()
        }
        return tabulate(decoding, names, summaries, {}, bounds)

    each = dict(zip(labels(runs), ([run] for run in runs), strict=True))
    means = {}
    for group in groups:
        done = [run for run in group if run.finished]
        if len({run.config.seed for run in done}) > 1:
            label = describe(group[0].config, [run.config for run in runs], "seed")
            means[f"{label}, {len(done)} seeds"] = done
    return RunTables(decoding, table(each, _unfinished(runs)), table(means))


def _unfinished(runs: list[Run]) -> list[str]:
    return [label for run, label in zip(runs, labels(runs), strict=True) if not run.finished]


def _key(place: int, name: str) -> Key:
    return Key(name, colour(place), dashed=place >= len(COLOURS))


def _overlay(value: str, groups: list[list[Run]]) -> Shown:
    """One line per run; runs that differ in seed only share a colour."""
    lines = []
    for place, group in enumerate(groups):
        key = _key(place, "")
        for run in group:
            x, y = [s["samples"] for s in run.curve], [lookup(s, value) for s in run.curve]
            lines.append(Line(x, y, key.colour, key.dashed))
    title, axis = CURVES[value]
    return Shown(title, plot(value.replace(".", "-"), [Panel(lines, axis, 2.6)]), [])
