"""The content of the page that compares runs."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from statistics import mean, stdev
from typing import Any, NamedTuple

from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import POPULATIONS
from dhocl.experiment.record import Record
from dhocl.report.figures import Key, Shown, colour
from dhocl.report.paired import StreamKey, as_good
from dhocl.report.reading import DECODINGS, MISSING, NUMBERS, OPEN_AAUC, Number, Run, entry, read, written
from dhocl.report.svg import COLOURS, Line, Panel, plot
from dhocl.report.tables import lookup

CURVES = {
    "accuracy": ("Accuracy averaged over the levels", "accuracy, %"),
    "fine_accuracy": ("Accuracy at the finest level", "accuracy, %"),
    "ms": ("Mistake severity, lower is better", "height of common ancestor"),
    "open.accuracy": ("Accuracy averaged over the levels, open: all test images", "accuracy, %"),
}
COLUMNS = [*NUMBERS, OPEN_AAUC]


class RunCell(NamedTuple):
    value: float | None  # rounded like the text, so that equal texts are equally good
    text: str
    values: dict[StreamKey, float] | None = None  # the values of a mean
    best: bool = False


class Row(NamedTuple):
    label: str
    cells: list[RunCell]  # by metric
    fair: bool = True  # the run is finished, so it can be best


class RunTable(NamedTuple):
    decoding: str
    runs: list[Row]
    seeds: list[Row]  # mean ± standard deviation of the runs that differ in seed only


def compare(records: list[Record]) -> dict[str, Any]:
    """The variables of compare.html."""
    runs = [read(record) for record in records]
    groups = by_settings(runs)
    names = [run.config for run in runs]
    return {
        "datasets": list(dict.fromkeys(run.config.dataset for run in runs)),
        "numbers": COLUMNS,
        "populations": POPULATIONS,
        "tables": [_table(decoding, prefix, runs, groups) for decoding, prefix in DECODINGS.items()],
        "unfinished": [label for run, label in zip(runs, labels(runs), strict=True) if not run.finished],
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

    >>> runs = [RunConfig(buffer=size, settings={"hpr": False}) for size in (100, 200)]
    >>> describe(runs[0], runs)
    'halo, buffer 100'
    """
    mine, all_fields = _fields(config), [_fields(other) for other in others]
    differs = [name for name in mine if name not in leave_out and any(f.get(name) != mine[name] for f in all_fields)]
    return ", ".join([config.method, *(f"{name.replace('_', ' ')} {mine[name]}" for name in differs)])


def _fields(config: RunConfig) -> dict[str, Any]:
    """All fields but the method, which every label starts with."""
    names = [field.name for field in dataclasses.fields(config) if field.name not in ("method", "settings")]
    return {name: getattr(config, name) for name in names} | config.settings


def labels(runs: list[Run]) -> list[str]:
    """A label for each run; with its folder if several runs have the same label."""
    configs = [run.config for run in runs]
    plain = [describe(config, configs) for config in configs]
    often = Counter(plain)
    return [f"{p} ({run.name})" if often[p] > 1 else p for p, run in zip(plain, runs, strict=True)]


def _table(decoding: str, prefix: str, runs: list[Run], groups: list[list[Run]]) -> RunTable:
    rows = [
        Row(label, [_cell(run.summary.get(entry(n.name, prefix)), n) for n in COLUMNS], run.finished)
        for run, label in zip(runs, labels(runs), strict=True)
    ]
    means = []
    for group in groups:
        done = [run for run in group if run.finished]
        if len({run.config.seed for run in done}) > 1:
            label = describe(group[0].config, [run.config for run in runs], "seed")
            means.append(Row(f"{label}, {len(done)} seeds", [_mean(done, prefix, n) for n in COLUMNS]))
    return RunTable(decoding, _marked(rows), _marked(means))


def _cell(value: float | None, number: Number, spread: str = "") -> RunCell:
    text = written(value, number.digits)
    if value is None or text == MISSING:
        return RunCell(None, text)
    return RunCell(round(value, number.digits), text + spread)


def _mean(runs: list[Run], prefix: str, number: Number) -> RunCell:
    """Mean ± sample standard deviation."""
    values = {run.key: run.summary[entry(number.name, prefix)] for run in runs}
    if None in values.values():
        return _cell(None, number)
    spread = f" ± {written(stdev(values.values()), number.digits)}"
    return _cell(mean(values.values()), number, spread)._replace(values=values)


def _marked(rows: list[Row]) -> list[Row]:
    """Mark the best of each column, and means that are not distinct from it."""
    for place, number in enumerate(COLUMNS):
        values = {i: row.cells[place].value for i, row in enumerate(rows) if row.fair}
        signed = {i: number.sign * value for i, value in values.items() if value is not None}
        if len(signed) < 2:
            continue
        best = rows[max(signed, key=signed.__getitem__)].cells[place]
        for i in signed:
            cell = rows[i].cells[place]
            good = as_good(cell.values or {}, best.values or {}, alike=cell.value == best.value)
            rows[i].cells[place] = cell._replace(best=good)
    return rows


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
