"""Line plots, bars and heatmaps as inline SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from torch import Tensor

from dhocl.report.labels import GAP, place_names

# Each has a contrast of at least 3.4 to white and to near black, for light and dark pages.
COLOURS = ["#2f7fd0", "#d9681d", "#15976f", "#a561cf", "#d64560", "#1593a8", "#8a8f2a", "#7f868e"]
GREY = "#9aa4af"  # of what is not highlighted
INK = "#010203"  # a placeholder, replaced by the text colour of the page
WIDTH = 4.6  # inches: narrow, so that text stays legible on a phone
SMALL = 6.5  # size of names inside of a plot
MARKED = 40  # largest number of evaluations that are marked by dots

STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 8.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
}


class Line(NamedTuple):
    x: Sequence[float]
    y: Sequence[float | None]  # None leaves a gap
    colour: str
    dashed: bool = False
    name: str = ""  # shown when the pointer is over a point of the line
    label: str = ""  # shown at the end of the line
    faint: bool = False  # thin, without dots


class Place(NamedTuple):
    name: str
    x: float
    y: float


class Series(NamedTuple):
    colour: str
    values: Sequence[tuple[float, float] | None]  # mean and standard deviation; None leaves a gap


class Panel(NamedTuple):
    """One of several plots with a common x axis."""

    lines: list[Line]
    ylabel: str
    height: float = 2.2  # inches
    log: bool = False


class Spot(NamedTuple):
    """A point with a tooltip."""

    panel: int
    x: float
    y: float
    text: str


def plot(name: str, panels: list[Panel]) -> Markup:
    """Panels over the samples seen; `name` makes the ids of a figure unique on a page."""
    return inline(plotted(panels), name, spots(panels))


def plotted(panels: list[Panel]) -> Figure:
    with matplotlib.rc_context(STYLE):
        heights = [panel.height for panel in panels]
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.3), layout="constrained")
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)
        for axes, panel in zip(grid[:, 0], panels, strict=True):
            _draw(axes, panel)
        bottom = grid[-1, 0]
        bottom.set_xlabel("samples seen")
        bottom.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        bottom.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    return figure


def spots(panels: list[Panel]) -> list[Spot]:
    """Tooltips for all points of the lines that have a name."""
    return [
        Spot(place, x, y, f"{line.name}, {x:,.0f} samples: {y:.3g}")
        for place, panel in enumerate(panels)
        for line in panel.lines
        if line.name
        for x, y in zip(line.x, line.y, strict=True)
        if y is not None
    ]


def _draw(axes: Axes, panel: Panel) -> None:
    for line in panel.lines:
        y = [np.nan if value is None else value for value in line.y]
        marker = "o" if len(y) <= MARKED and not line.faint else ""
        style, width = (0, (3, 2)) if line.dashed else "-", 0.7 if line.faint else 1.3
        axes.plot(line.x, y, color=line.colour, linestyle=style, linewidth=width, marker=marker, markersize=2.2)
    _label_ends(axes, [line for line in panel.lines if line.label])
    axes.set_ylabel(panel.ylabel)
    if panel.log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.set_ylim(low, max(high, 4 * low))  # wide enough to hold a tick
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _label_ends(axes: Axes, lines: Sequence[Line]) -> None:
    """Names at the right ends of lines, moved apart where they would overlap."""
    ends = [(line, [v for v in line.y if v is not None][-1]) for line in lines if any(v is not None for v in line.y)]
    low, high = axes.get_ylim()
    room, last = 0.055 * (high - low), low - (high - low)
    for line, value in sorted(ends, key=lambda end: end[1]):
        last = max(value, last + room)
        axes.annotate(
            line.label,
            (line.x[-1], last),
            (4, 0),
            textcoords="offset points",
            color=line.colour,
            va="center",
            fontsize=7,
            annotation_clip=False,
        )


def intervals(names: Sequence[str], values: Sequence[tuple[float, float | None]], xlabel: str, better: int) -> Figure:
    """A mean and half an interval per name, from top to bottom; those that exclude 0 are in colour.

    Without an interval, a mean is a grey mark without a line.

    `better` is 1 if higher is better, and -1 if lower is.
    """
    with matplotlib.rc_context(STYLE | {"axes.grid.axis": "x"}):
        figure = Figure(figsize=(WIDTH, 0.6 + 0.2 * len(names)), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, color=INK, linewidth=0.8)
        for place, (mean, half) in enumerate(values):
            shade = GREY if half is None or abs(mean) <= half else COLOURS[0] if better * mean > 0 else COLOURS[1]
            axes.errorbar(mean, place, xerr=half, color=shade, marker="o", markersize=3, linewidth=1.3, capsize=2)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel(xlabel)
    return figure


def places(points: Sequence[Place], best: Sequence[Place], xlabel: str, ylabel: str) -> Figure:
    """Named points with a logarithmic x axis; the best ones are connected, in the order given."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        axes = figure.subplots()
        axes.plot([p.x for p in best], [p.y for p in best], color=COLOURS[0], linewidth=1.3)
        for point in points:
            axes.plot([point.x], [point.y], marker="o", markersize=3.5, color=COLOURS[0] if point in best else GREY)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(x=0.15)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        figure.draw_without_rendering()  # positions are known only then
        _name(axes, [*best, *(point for point in points if point not in best)], len(best))
    return figure


def _name(axes: Axes, points: Sequence[Place], best: int) -> None:
    """Names beside points, the first `best` in colour, with a line to the point where they are not next to it."""
    unit = 72 / axes.figure.dpi  # points of typography per pixel
    at = [(unit * x, unit * y) for x, y in axes.transData.transform([(point.x, point.y) for point in points])]
    boxes = place_names(at, [0.55 * SMALL * len(point.name) for point in points], 1.2 * SMALL)
    for number, (point, (x, y), box) in enumerate(zip(points, at, boxes, strict=True)):
        right = box.left > x
        shift = (GAP if right else -GAP, box.bottom + box.height / 2 - y)
        far = abs(shift[1]) > box.height / 2
        axes.annotate(
            point.name,
            (point.x, point.y),
            shift,
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=SMALL,
            color=COLOURS[0] if number < best else INK,
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkA": 0} if far else None,
        )


def bars(names: Sequence[str], values: Sequence[float], errors: Sequence[float], xlabel: str) -> Figure:
    """One bar per name, from top to bottom, with its standard deviation."""
    with matplotlib.rc_context(STYLE | {"axes.grid.axis": "x"}):
        figure = Figure(figsize=(WIDTH, 0.6 + 0.22 * len(names)), layout="constrained")
        axes = figure.subplots()
        axes.set_axisbelow(True)
        axes.barh(range(len(names)), values, xerr=errors, color=COLOURS[0], ecolor=INK, height=0.7)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel(xlabel)
        for place, value in enumerate(values):
            axes.annotate(f"{value:.3g}", (value, place), (3, 0), textcoords="offset points", va="center", fontsize=7)
        axes.margins(x=0.12)
    return figure


def dots(names: Sequence[str], series: Sequence[Series], xlabel: str) -> Figure:
    """A line of dots for each series, one dot per name, from top to bottom. Series are shifted to not overlap."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.8 + 0.28 * len(names)), layout="constrained")
        axes = figure.subplots()
        for place, own in enumerate(series):
            means, errors = zip(*((np.nan, 0.0) if value is None else value for value in own.values), strict=True)
            y = np.arange(len(names)) + 0.12 * (place - (len(series) - 1) / 2)
            axes.errorbar(means, y, xerr=errors, color=own.colour, marker="o", markersize=3, linewidth=0.7)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel(xlabel)
    return figure


def heatmaps(name: str, matrices: dict[str, Tensor], cuts: list[int]) -> Markup:
    return inline(heatmapped(matrices, cuts), name)


def heatmapped(matrices: dict[str, Tensor], cuts: list[int]) -> Figure:
    """Matrices (C, C) in [0, 1] side by side, by title, with lines before the rows in `cuts`."""
    with matplotlib.rc_context(STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(WIDTH, WIDTH / len(matrices) + 0.5), layout="constrained")
        grid = figure.subplots(1, len(matrices), squeeze=False)[0]
        for axes, (title, matrix) in zip(grid, matrices.items(), strict=True):
            shown = axes.imshow(matrix.numpy(), cmap="viridis_r", vmin=0, vmax=1)
            for cut in cuts:
                axes.axhline(cut - 0.5, color="white", linewidth=0.4)
                axes.axvline(cut - 0.5, color="white", linewidth=0.4)
            axes.set_title(title, fontsize=8.5)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
        bar = figure.colorbar(shown, ax=list(grid), location="bottom", fraction=0.05, aspect=40, ticks=[0, 1])
        bar.ax.set_xticklabels(["near", "far"])
        bar.outline.set_visible(False)
    return figure


def inline(figure: Figure, name: str, points: Sequence[Spot] = ()) -> Markup:
    """The figure as an SVG element with unique ids, the text colour of the page, and no external reference."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=True, dpi=150, metadata={"Date": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    tag, rest = svg.split(">", 1)
    svg = re.sub(r' (xmlns(:\w+)?|width|height|version)="[^"]*"', "", tag) + ">" + rest
    svg = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", svg).replace("xlink:href", "href")
    svg = svg.replace(INK, "currentColor").replace("</svg>", "".join(_circles(figure, points)) + "</svg>")
    return Markup(svg)


def _circles(figure: Figure, points: Sequence[Spot]) -> Iterator[str]:
    """Tooltips as SVG titles. SVG coordinates are points of 1/72 inch from the top."""
    height = figure.get_figheight() * 72
    for spot in points:
        x, y = figure.axes[spot.panel].transData.transform((spot.x, spot.y)) * 72 / figure.dpi
        yield (
            f'<circle class="spot" cx="{x:.1f}" cy="{height - y:.1f}" r="5"><title>{escape(spot.text)}</title></circle>'
        )
