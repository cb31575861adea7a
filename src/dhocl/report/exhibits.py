"""Tables and figures of a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from dhocl.core.taxonomy import Taxonomy
from dhocl.experiment.evaluate import Scores
from dhocl.experiment.recipes import Across, Bars, Curves, Forest, Front, Growth, Holdings, Numbers, Recipe, Structure
from dhocl.experiment.record import MARKS, Record
from dhocl.report.across import across_pictures, across_tables
from dhocl.report.comparisons import Picture, barred, curves, forest, front, name_of_ids
from dhocl.report.figures import Key, Shown, blocks, colour, in_order, level_of, scaled
from dhocl.report.reading import Run
from dhocl.report.svg import Line, Panel, heatmapped, inline, plotted, spots
from dhocl.report.tables import Table, tabulate
from dhocl.report.tree import draw, links

Runs = Mapping[str, Mapping[str, list[Run]]]  # panel -> row -> finished runs by seed


def tables(recipe: Recipe, runs: Runs, with_printed: bool) -> Iterator[Table]:
    """`runs`: without empty rows and panels. `with_printed`: with the results of the paper."""
    for exhibit in recipe.exhibits:
        if isinstance(exhibit, Across):
            yield from across_tables(exhibit, runs, recipe.printed if with_printed else {})
        elif isinstance(exhibit, Numbers):
            for panel, rows in runs.items():
                summaries = {row: {run.key: run.summary for run in found} for row, found in rows.items()}
                printed = recipe.printed.get(panel, {}) if with_printed else {}
                yield tabulate(panel, exhibit.names, summaries, printed, exhibit.bounds, exhibit.reference)


def pictures(recipe: Recipe, runs: Runs, records: Mapping[str, Mapping[str, Record]]) -> Iterator[Picture]:
    """`runs`: without empty rows and panels. `records`: of the first run of each panel and row."""
    for exhibit in recipe.exhibits:
        if isinstance(exhibit, Across):
            yield from across_pictures(exhibit, runs)
            continue
        for panel, there in runs.items():
            match exhibit:
                case Curves(score):
                    yield curves(panel, score, there)
                case Bars(name):
                    yield barred(panel, name, there)
                case Forest(name, reference):
                    yield from forest(panel, name, reference, there)
                case Front(name):
                    yield front(panel, name, there)
                case Holdings():
                    yield from holdings(panel, there)
                case Structure():
                    yield from structure(panel, there, records[panel])
                case Growth(counts):
                    yield from growth(panel, next(iter(there.values()))[0], counts)


def holdings(panel: str, rows: Mapping[str, list[Run]]) -> Iterator[Picture]:
    """Images in memory per level, over the stream."""
    for row, (run, *_) in rows.items():
        levels = run.taxonomy.levels
        lines = [
            Line(
                [s["samples"] for s in run.curve],
                [s.get("held", {}).get(str(level)) for s in run.curve],
                colour(level),
                name=run.ranks[level],
            )
            for level in levels
        ]
        panels = [Panel(lines, "images in memory", 1.8)]
        figure = plotted(panels)
        name = f"{panel}-{row}-memory"
        keys = [Key(run.ranks[level], colour(level)) for level in levels]
        yield Picture(
            name,
            Shown(f"Memory of {row}: {panel}", inline(figure, name_of_ids(name), spots(panels)), keys),
            figure,
        )


def structure(panel: str, rows: Mapping[str, list[Run]], records: Mapping[str, Record]) -> Iterator[Picture]:
    """The matrices of all rows at each mark, so that rows of the same mark are neighbours."""
    for mark in (*MARKS, None):
        for row, (run, *_) in rows.items():
            if mark in (kept := moments(run)) and (found := records[row].matrices(mark)):
                yield distances(panel, row, run, kept[mark], found)


def moments(run: Run) -> dict[int | None, Scores]:
    """Mark -> the first evaluation with that many classes of the finest level; None -> the last. Without duplicates."""
    finest = str(len(run.ranks) - 1)
    found: dict[int | None, Scores] = {}
    for mark in MARKS:
        reached = [scores for scores in run.curve[:-1] if scores["classes"].get(finest, 0) >= mark]
        if reached and reached[0] not in found.values():
            found[mark] = reached[0]
    return found | {None: run.curve[-1]}


def distances(panel: str, row: str, run: Run, scores: Scores, matrices: Mapping[str, Tensor]) -> Picture:
    """Distances of classes of the finest level in the tree known by then, between prototypes, and their difference."""
    name = max(matrices, key=level_of)
    level = level_of(name)
    tree = Taxonomy.replay(event for event in run.taxonomy.events if event.time <= scores["step"])
    order = in_order(tree, level)
    truth, learned = (scaled(m[order][:, order]) for m in (tree.distances(level), matrices[name]))
    shown = {"the tree": truth, "prototypes": learned, "difference": (learned - truth).abs()}
    figure = heatmapped(shown, blocks(tree, level, order)[0])
    value = scores["structure"].get(name)
    caption = "" if value is None else f"Correlation with the tree {value:.2f}. "
    caption += f"Mean difference {shown['difference'].mean():.3f}. "
    caption += f"After {scores['samples']:,} samples; each matrix is scaled to its range."
    title = f"{row}, {len(order)} {run.ranks[level]} classes: {panel}"
    file = f"{panel}-{row}-distances-{len(order)}"
    return Picture(file, Shown(title, inline(figure, name_of_ids(file)), [], caption), figure)


def growth(panel: str, run: Run, counts: tuple[int | None, ...]) -> Iterator[Picture]:
    """The known tree when so many classes of the finest level had arrived."""
    for count in counts:
        tree = until(run.taxonomy, count)
        finest = tree.widths[tree.levels[-1]]
        name = f"{panel}-tree-{finest}"
        figure = drawn(tree, run.ranks)
        title = f"{finest} {run.ranks[tree.levels[-1]]} classes known: {panel}"
        yield Picture(
            name, Shown(title, inline(figure, name_of_ids(name)), [], f"{len(tree)} classes in total."), figure
        )


def until(taxonomy: Taxonomy, count: int | None) -> Taxonomy:
    """The tree after the batch in which the finest level reached `count` classes."""
    finest, met, last = taxonomy.levels[-1], 0, None
    for event in taxonomy.events:
        if last is not None and event.time != last:
            break
        if event.kind == "add" and taxonomy.labels[event.node].level == finest:
            met += 1
            if met == count:
                last = event.time
    else:
        return taxonomy
    return Taxonomy.replay(event for event in taxonomy.events if event.time <= last)


def drawn(tree: Taxonomy, ranks: list[str]) -> Figure:
    nodes = draw(tree, ranks)
    figure = Figure(figsize=(4.6, 4.6), layout="constrained")
    axes = figure.subplots()
    for link in links(tree):
        if link.last:
            a, b = nodes[link.parent], nodes[link.child]
            axes.plot([a.x, b.x], [-a.y, -b.y], color="#9aa4af", linewidth=0.5, zorder=1)
    for place in sorted({node.place for node in nodes}):
        there = [node for node in nodes if node.place == place]
        axes.scatter(
            [n.x for n in there], [-n.y for n in there], s=max(4, 30 - 9 * place), color=colour(place), zorder=2
        )
    axes.set_aspect("equal")
    axes.axis("off")
    figure.legend(
        handles=[
            Line2D([], [], marker="o", linestyle="", color=colour(p), label=ranks[level])
            for p, level in enumerate(tree.levels)
        ],
        loc="lower right",
        frameon=False,
        fontsize=7,
    )
    return figure


def with_legend(picture: Picture) -> Figure:
    """The figure with title and legend inside, for a file."""
    assert picture.figure is not None
    keys = picture.shown.keys
    if keys:
        handles = [Line2D([], [], color=k.colour, linestyle="--" if k.dashed else "-", label=k.name) for k in keys]
        picture.figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=7)
    picture.figure.suptitle(picture.shown.title, fontsize=9)
    return picture.figure
