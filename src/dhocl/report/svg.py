"""Line plots and matrices as SVG inside a page. Names of classes and levels stay in the page's own text."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from torch import Tensor

# Each has a contrast of at least 3.4 to white and to near black, so that one figure serves light and dark.
COLOURS = ["#2f7fd0", "#d9681d", "#15976f", "#a561cf", "#d64560", "#1593a8", "#8a8f2a", "#7f868e"]
INK = "#010203"  # stands for the colour of the page's text, which the page decides
WIDTH = 4.6  # inches: narrow, so that text is legible where a phone shrinks the figure
MARKED = 40  # evaluations up to which each gets a dot

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


class Panel(NamedTuple):
    """One of the plots that lie above each other on a common x axis."""

    lines: list[Line]
    ylabel: str
    height: float = 2.2  # inches
    log: bool = False


def plot(name: str, panels: list[Panel]) -> Markup:
    """Panels over the samples seen; `name` keeps the ids of several figures on a page apart."""
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
        return _inline(figure, name)


def _draw(axes: Axes, panel: Panel) -> None:
    for line in panel.lines:
        y = [np.nan if value is None else value for value in line.y]
        marker = "o" if len(y) <= MARKED else ""
        style = (0, (3, 2)) if line.dashed else "-"
        axes.plot(line.x, y, color=line.colour, linestyle=style, linewidth=1.3, marker=marker, markersize=2.2)
    axes.set_ylabel(panel.ylabel)
    if panel.log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.set_ylim(low, max(high, 4 * low))  # wide enough to hold a tick
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def heatmaps(name: str, matrices: dict[str, Tensor], cuts: list[int]) -> Markup:
    """(C, C) values in [0, 1] side by side under their titles, divided by lines before the rows in `cuts`."""
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
        return _inline(figure, name)


def _inline(figure: Figure, name: str) -> Markup:
    """The figure as an element of a page: ids of its own, the page's text colour, no reference outside."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=True, dpi=150, metadata={"Date": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    tag, rest = svg.split(">", 1)
    svg = re.sub(r' (xmlns(:\w+)?|width|height|version)="[^"]*"', "", tag) + ">" + rest
    svg = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", svg).replace("xlink:href", "href")
    return Markup(svg.replace(INK, "currentColor"))
