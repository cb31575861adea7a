"""Figures that compare the rows of a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import mean, stdev
from typing import NamedTuple

from matplotlib.figure import Figure

from dhocl.report.compare import CURVES
from dhocl.report.figures import Shown, colour
from dhocl.report.paired import difference
from dhocl.report.reading import Run
from dhocl.report.svg import GREY, Line, Panel, Place, bars, inline, intervals, places, plotted, spots
from dhocl.report.tables import KNOWN, lookup

HIGHLIGHTED = 6  # curves in colour; the others are grey
Rows = Mapping[str, list[Run]]  # finished runs by seed


class Picture(NamedTuple):
    """A figure for the page, with the legend in HTML, and for files, with the legend inside."""

    name: str  # of the files
    shown: Shown
    figure: Figure | None  # None: only on the page


def name_of_ids(name: str) -> str:
    """A name that is valid in ids of a page."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def curves(panel: str, score: str, rows: Rows) -> Picture:
    """The mean over the seeds, which have the same evaluation points. The best at the end are in colour."""
    title, axis = CURVES[score]
    means: dict[str, list[float | None]] = {}
    for row, found in rows.items():
        by_seed = [[s.get(score) for s in run.curve] for run in found]
        means[row] = [None if None in values else mean(values) for values in zip(*by_seed, strict=False)]
    best = set(sorted(means, key=lambda row: _end(means[row], score), reverse=True)[:HIGHLIGHTED])
    shades = iter(range(len(best)))
    lines = []
    for row, found in rows.items():
        x, y = [s["samples"] for s in found[0].curve], means[row]
        shade = colour(next(shades)) if row in best else GREY
        lines.append(Line(x[: len(y)], y, shade, name=row, label=row if row in best else "", faint=row not in best))
    panels = [Panel(sorted(lines, key=lambda line: not line.faint), axis, 2.9)]
    figure = plotted(panels)
    name = f"{panel}-{score}"
    others = len(rows) - len(best)
    caption = f"In grey: {others} others." if others > 0 else ""
    return Picture(
        name, Shown(f"{title}: {panel}", inline(figure, name_of_ids(name), spots(panels)), [], caption), figure
    )


def _end(values: list[float | None], score: str) -> float:
    """For sorting: higher is better."""
    known = [value for value in values if value is not None]
    return (-known[-1] if score == "ms" else known[-1]) if known else float("-inf")


def barred(panel: str, name: str, rows: Rows) -> Picture:
    number = KNOWN[name]
    known = {row: found for row, found in _values(rows, name).items() if found}
    means, errors = [mean(v) for v in known.values()], [stdev(v) if len(v) > 1 else 0.0 for v in known.values()]
    figure = bars(list(known), means, errors, name + (" (lower is better)" if number.sign < 0 else ""))
    file = f"{panel}-{name}"
    return Picture(file, Shown(f"{name}: {panel}", inline(figure, name_of_ids(file)), [], number.meaning), figure)


def forest(panel: str, name: str, reference: str, rows: Rows) -> Iterator[Picture]:
    """Paired differences to a row with their 95 % intervals; nothing if there is no row to compare."""
    number = KNOWN[name]
    values = {row: {run.key: lookup(run.summary, name) for run in found} for row, found in rows.items()}
    known = {row: {key: v for key, v in found.items() if v is not None} for row, found in values.items()}
    gaps = {row: difference(found, known[reference]) for row, found in known.items() if reference in known}
    there = {row: gap for row, gap in gaps.items() if gap is not None and row != reference}
    if not there:
        return
    ordered = sorted(there.items(), key=lambda item: -number.sign * item[1].mean)
    pairs = max(gap.pairs for gap in there.values())
    label = f"{number.name} minus that of {reference}" + (" (lower is better)" if number.sign < 0 else "")
    shown = [(gap.mean, gap.half) for _, gap in ordered]
    figure = intervals([row for row, _ in ordered], shown, label, number.sign)
    file = f"{panel}-{name}-differences"
    caption = f"Mean over {'up to ' if len({gap.pairs for gap in there.values()}) > 1 else ''}{pairs} common seeds"
    caption += ", with the 95 % interval of paired differences. Blue is better, orange worse, grey not decided."
    if any(gap.half is None for gap in there.values()):
        caption += " A mark without a line has one seed."
    title = f"{number.name} compared with {reference}: {panel}"
    yield Picture(file, Shown(title, inline(figure, name_of_ids(file)), [], caption), figure)


def front(panel: str, name: str, rows: Rows) -> Picture:
    """A metric against the cost of learning; rows that no cheaper row reaches are connected."""
    number = KNOWN[name]
    costs, values = _values(rows, "cost_vs_er"), _values(rows, name)
    points = [Place(row, mean(costs[row]), mean(values[row])) for row in rows if costs[row] and values[row]]
    best: list[Place] = []
    for point in sorted(points, key=lambda p: (p.x, -number.sign * p.y)):
        if not best or number.sign * point.y > number.sign * best[-1].y:
            best.append(point)
    figure = places(points, best, "cost of learning, replay = 1", number.name)
    file = f"{panel}-{name}-cost"
    caption = (
        "Pixels passed through the network while learning, relative to replay. Connected: no cheaper one is better."
    )
    return Picture(file, Shown(f"{name} and cost: {panel}", inline(figure, name_of_ids(file)), [], caption), figure)


def _values(rows: Rows, name: str) -> dict[str, list[float]]:
    found = {row: [lookup(run.summary, name) for run in runs] for row, runs in rows.items()}
    return {row: [value for value in values if value is not None] for row, values in found.items()}
