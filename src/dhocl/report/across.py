"""Tables and a figure of methods under conditions, or with backbones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import mean, stdev

from dhocl.experiment.recipes.recipe import Across, Printed
from dhocl.report.comparisons import Picture, Rows, name_of_ids
from dhocl.report.figures import Key, Shown, colour
from dhocl.report.reading import Number
from dhocl.report.svg import Series, dots, inline
from dhocl.report.tables import KNOWN, Cell, Line, Table, cell_of, compared

Cells = dict[str, dict[str, Cell]]  # condition -> method -> a metric


def across_tables(exhibit: Across, runs: Mapping[str, Rows], printed: Printed) -> Iterator[Table]:
    for name in exhibit.names:
        number = KNOWN[name]
        for dataset, cells in arranged(name, runs, printed).items():
            methods = methods_of(cells)
            lines = []
            for condition, there in cells.items():
                found = compared(there, number.sign, reference=exhibit.reference)
                lines.append(Line(condition, [found.get(method, Cell({}, None)) for method in methods]))
            seeds = max(len(cell.values) for line in lines for cell in line.cells)
            columns = [Number(method, number.meaning, number.digits) for method in methods]
            title = f"{number.name}{' ↓' if number.sign < 0 else ''}: {dataset}"
            yield Table(title, columns, lines, seeds, exhibit.reference, within="line")


def across_pictures(exhibit: Across, runs: Mapping[str, Rows]) -> Iterator[Picture]:
    name = exhibit.names[0]
    number = KNOWN[name]
    for dataset, cells in arranged(name, runs, {}).items():
        methods = methods_of(cells)
        series = [
            Series(colour(place), [_spread(there.get(method)) for there in cells.values()])
            for place, method in enumerate(methods)
        ]
        figure = dots(list(cells), series, number.name + (" (lower is better)" if number.sign < 0 else ""))
        keys = [Key(method, own.colour) for method, own in zip(methods, series, strict=True)]
        file = f"{dataset}-{name}-conditions"
        caption = "Mean and standard deviation over the seeds."
        yield Picture(file, Shown(f"{name}: {dataset}", inline(figure, name_of_ids(file)), keys, caption), figure)


def arranged(name: str, runs: Mapping[str, Rows], printed: Printed) -> dict[str, Cells]:
    """Data set -> condition -> method -> a metric."""
    datasets: dict[str, Cells] = {}
    for panel, rows in runs.items():
        dataset, _, condition = panel.partition(", ")
        for row, found in rows.items():
            method, kind = (row, condition) if condition else row.split(" ", 1)
            cell = cell_of({run.key: run.summary for run in found}, name, printed.get(panel, {}).get(row, {}))
            datasets.setdefault(dataset, {}).setdefault(kind, {})[method] = cell
    return datasets


def methods_of(cells: Cells) -> list[str]:
    """By name, so that a method has the same colour on all pages."""
    return sorted({method for there in cells.values() for method in there})


def _spread(cell: Cell | None) -> tuple[float, float] | None:
    """Mean and standard deviation; None without a value."""
    if cell is None or not cell.values:
        return None
    values = list(cell.values.values())
    return mean(values), stdev(values) if len(values) > 1 else 0.0
