"""The content of the page that compares runs."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import POPULATIONS
from dhocl.experiment.record import Record, title
from dhocl.report.figures import Key, Shown, colour
from dhocl.report.reading import DECODINGS, MISSING, NUMBERS, OPEN_AAUC, Run, entry, read
from dhocl.report.svg import COLOURS, Line, Panel, plot
from dhocl.report.tables import Table, gap_text, lookup, paired_note, shown, spread, tabulate

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


class Group(NamedTuple):
    """Runs that differ in seed only."""

    key: Key
    settings: list[str]  # values of the settings that differ between groups
    runs: list[tuple[int, str]]  # seed, and the name of the run in the tables


def compare(records: list[Record], page: Path | None = None) -> dict[str, Any]:
    """The variables of compare.html; its links are relative to the folder of `page`."""
    runs = [read(record) for record in records]
    groups = by_settings(runs)
    names = [run.config for run in runs]
    named = dict(zip(map(id, runs), labels(runs), strict=True))
    fields = {id(group[0]): _fields(group[0].config) | {"method": group[0].config.method} for group in groups}
    differ = [name for name in _names(fields.values()) if len({str(own.get(name)) for own in fields.values()}) > 1]
    return {
        "datasets": list(dict.fromkeys(title(run.config) for run in runs)),
        "differ": [name.replace("_", " ") for name in differ if name != "seed"],
        "groups": [
            Group(
                _key(place, describe(group[0].config, names, "seed")),
                [str(fields[id(group[0])].get(name, MISSING)) for name in differ if name != "seed"],
                [(run.config.seed, named[id(run)]) for run in group],
            )
            for place, group in enumerate(groups)
        ],
        "links": {
            named[id(run)]: link for run, record in zip(runs, records, strict=True) if (link := _link(record, page))
        },
        "gap_text": gap_text,
        "paired_note": paired_note,
        "numbers": COLUMNS,
        "shown": shown,
        "spread": spread,
        "populations": POPULATIONS,
        "tables": [_tables(decoding, prefix, runs, groups) for decoding, prefix in DECODINGS.items()],
        "unfinished": _unfinished(runs),
        "figures": [_overlay(value, groups) for value in CURVES],
    }


def _names(fields: Iterable[dict[str, Any]]) -> list[str]:
    """All names, the method first."""
    return list(dict.fromkeys(["method", *(name for own in fields for name in own)]))


def _link(record: Record, page: Path | None) -> str | None:
    """The report of a run as seen from the page, if both have been or will be written."""
    report = record.folder.resolve() / "report.html"
    if page is None or not report.exists():
        return None
    return quote(Path(os.path.relpath(report, page.resolve().parent)).as_posix())


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
    def table(rows: Mapping[str, list[Run]]) -> Table:
        names = [number.name for number in COLUMNS]
        summaries = {
            row: {run.key: {name: run.summary.get(entry(name, prefix)) for name in names} for run in found}
            for row, found in rows.items()
        }
        return tabulate(decoding, names, summaries, {})

    each = dict(zip(labels(runs), ([run] for run in runs), strict=True))
    means = {}
    for group in groups:
        done = [run for run in group if run.finished]
        if len({run.config.seed for run in done}) > 1:
            label = describe(group[0].config, [run.config for run in runs], "seed")
            means[f"{label}, {len(done)} seeds"] = done
    return RunTables(decoding, table(each), table(means))


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
