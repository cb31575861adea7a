"""The forest plot of a claim: the differences of its comparisons, with their intervals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dhocl.report.claim_text import spoken
from dhocl.report.claims import NoneBest
from dhocl.report.evidence import Outcome, Verdict
from dhocl.report.svg import COLOURS, GREY, INK, STYLE, WIDTH
from dhocl.report.verdicts import ClaimResult, PartResult, worst

SHADES = {Verdict.supports: COLOURS[0], Verdict.contradicts: COLOURS[1], Verdict.undecided: GREY}
MARKERS = "osD^vP"  # of the data sets
COLUMNS = 3  # plots in a row
LINE = 0.11  # inches per data set
LABEL = 0.16  # inches per label, at least


class Plot(NamedTuple):
    """The differences of one quantity: label -> outcomes, one per data set."""

    title: str
    lines: dict[str, list[Outcome]]


def claim_forest(result: ClaimResult) -> Figure | None:
    """None if there is no difference to show."""
    rows = [row for part in result.parts for row in in_rows(plots(part))]
    if not rows:
        return None
    there = [outcome for row in rows for plot in row for own in plot.lines.values() for outcome in own]
    markers = dict(zip(dict.fromkeys(outcome.dataset for outcome in there), MARKERS * len(there), strict=False))
    heights = [0.5 + max(LABEL, LINE * len(markers)) * max(len(plot.lines) for plot in row) for row in rows]
    with matplotlib.rc_context(STYLE | {"axes.grid.axis": "x", "font.size": 7.5}):
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.5), layout="constrained")
        parts = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, row in zip(parts, rows, strict=True):
            for place, (axes, plot) in enumerate(zip(part.subplots(1, len(row), squeeze=False)[0], row, strict=True)):
                _draw(axes, plot, markers, labelled=place == 0, ticks=4 if len(row) == 1 else 2)
        handles = [Line2D([], [], color=INK, marker=m, linestyle="", markersize=4, label=n) for n, m in markers.items()]
        names = spoken(result.parts[0].part)
        handles += [Line2D([], [], color=shade, linewidth=3, label=names[verdict]) for verdict, shade in SHADES.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def plots(part: PartResult) -> Iterator[Plot]:
    """A plot for each quantity of a statement.

    Where the statement is that no row dominates, the comparison of each row that speaks most clearly against it.
    """
    found: dict[str, dict[str, list[Outcome]]] = {}
    if isinstance(part.part, NoneBest):
        cells: dict[tuple[str, str, str], list[Outcome]] = {}
        for outcome in part.outcomes:
            key = (outcome.comparison.quantity.title, outcome.comparison.first, outcome.dataset)
            cells.setdefault(key, []).append(outcome)
        for (title, row, _), own in cells.items():
            if shown := worst(own):
                found.setdefault(title, {}).setdefault(row, []).append(shown)
    else:
        for outcome in part.outcomes:
            if outcome.difference:
                lines = found.setdefault(outcome.comparison.quantity.title, {})
                lines.setdefault(outcome.comparison.name, []).append(outcome)
    yield from (Plot(title, lines) for title, lines in found.items())


def in_rows(shown: Iterator[Plot]) -> list[list[Plot]]:
    """Plots side by side have the same labels, which are written once."""
    rows: list[list[Plot]] = []
    for plot in shown:
        if rows and len(rows[-1]) < COLUMNS and list(rows[-1][0].lines) == list(plot.lines):
            rows[-1].append(plot)
        else:
            rows.append([plot])
    return rows


def _draw(axes: Axes, plot: Plot, markers: dict[str, str], labelled: bool, ticks: int) -> None:
    axes.axvline(0, color=INK, linewidth=0.8)
    places = list(markers)
    for line, own in enumerate(plot.lines.values()):
        for outcome in own:
            assert outcome.difference is not None
            y = line + 0.8 * ((places.index(outcome.dataset) + 0.5) / len(places) - 0.5)
            axes.errorbar(
                outcome.difference.mean,
                y,
                xerr=outcome.difference.half,
                color=SHADES[outcome.verdict],
                marker=markers[outcome.dataset],
                markersize=3,
                linewidth=1,
            )
    lower = next(iter(plot.lines.values()))[0].comparison.quantity.direction < 0
    axes.set_title(plot.title + (" ↓" if lower else ""), fontsize=7.5)
    axes.set_yticks(range(len(plot.lines)), list(plot.lines) if labelled else [""] * len(plot.lines))
    axes.set_ylim(len(plot.lines) - 0.5, -0.5)
    axes.xaxis.set_major_locator(MaxNLocator(ticks))
