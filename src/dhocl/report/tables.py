"""A table of numbers, and the ways to write it down."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from dhocl.report.reading import MISSING, NUMBERS, Number, written

MORE = [
    Number("ms_mistakes", "The same over mistakes only.", digits=2, sign=-1),
    Number("cost_vs_er", "Passes of images through the network while learning; plain replay is 1.", digits=2, sign=-1),
    Number("samples_per_second", "Samples learned a second on the machine that ran it.", digits=0),
]
KNOWN = {number.name: number for number in [*NUMBERS, *MORE]} | {
    f"{name}.{place}": Number(f"{name} {level}", meaning, sign=sign)
    for place, level in ((-1, "finest"), (-2, "above"))
    for name, meaning, sign in (
        ("A_AUC", "Accuracy of the level, averaged over all evaluations, in percent.", 1),
        ("A_last", "Accuracy of the level at the end, in percent.", 1),
        ("F_last", "How far its classes fell from their best end of a group, in percent points.", -1),
    )
}
KNOWN["pw_js.group_ends"] = Number(
    "pw-JS", "IIRC: precision-weighted Jaccard similarity of predicted and true labels at the ends of groups, percent."
)


class Cell(NamedTuple):
    values: tuple[float, ...]  # by seed
    printed: float | None  # in the paper
    best: bool = False


class Line(NamedTuple):
    name: str
    cells: list[Cell]


class Table(NamedTuple):
    title: str
    numbers: list[Number]
    lines: list[Line]
    seeds: int

    @property
    def printed(self) -> bool:
        return any(cell.printed is not None for line in self.lines for cell in line.cells)


def lookup(summary: Mapping[str, Any], path: str) -> float | None:
    """A number of a summary by its name, also inside another: by key, or by place among the levels from the finest up.

    >>> lookup({"AAUC": 50.0, "A_AUC": {"0": 70.0, "10": 30.0, "2": 40.0}}, "A_AUC.-1")
    30.0
    """
    value: Any = summary
    for key in path.split("."):
        if value is None:
            return None
        if key.startswith("-"):
            levels = sorted(value, key=int)
            value = value[levels[int(key)]] if len(levels) >= -int(key) else None
        else:
            value = value.get(key)
    return value  # type: ignore[no-any-return]


def tabulate(
    title: str,
    names: Sequence[str],
    summaries: Mapping[str, Sequence[Mapping[str, Any]]],
    printed: Mapping[str, Mapping[str, float]],
    bounds: Collection[str] = (),
) -> Table:
    """A line for each row of `summaries`, which are of its finished runs; the best mean of each number is marked.

    Rows named in `bounds` are there to be compared with and can not be best.
    """
    numbers = [KNOWN[name] for name in names]
    lines = []
    for row, found in summaries.items():
        cells = []
        for name in names:
            values = [lookup(summary, name) for summary in found]
            known = tuple(value for value in values if value is not None)
            cells.append(Cell(known, printed.get(row, {}).get(name)))
        lines.append(Line(row, cells))
    for place, number in enumerate(numbers):
        rivals = [line for line in lines if line.name not in bounds and line.cells[place].values]
        means = [number.sign * mean(line.cells[place].values) for line in rivals]
        for line in rivals:
            cell = line.cells[place]
            top = written(number.sign * max(means), number.digits)
            line.cells[place] = cell._replace(best=len(rivals) > 1 and shown(cell, number) == top)
    return Table(title, numbers, lines, max((len(found) for found in summaries.values()), default=0))


def shown(cell: Cell, number: Number) -> str:
    """The mean."""
    return written(mean(cell.values), number.digits) if cell.values else MISSING


def spread(cell: Cell, number: Number) -> str:
    """The standard deviation of a sample, nothing for a single one."""
    return written(stdev(cell.values), number.digits) if len(cell.values) > 1 else ""


def as_markdown(table: Table) -> str:
    heads = [number.name + (" ↓" if number.sign < 0 else "") for number in table.numbers]
    lines = [["", *heads], ["---"] + ["---:"] * len(heads)]
    for line in table.lines:
        cells = []
        for cell, number in zip(line.cells, table.numbers, strict=True):
            text = f"**{shown(cell, number)}**" if cell.best else shown(cell, number)
            text += f" ± {spread(cell, number)}" if spread(cell, number) else ""
            cells.append(text + (f" ({cell.printed:g})" if cell.printed is not None else ""))
        lines.append([line.name, *cells])
    note = f"Mean ± standard deviation over {table.seeds} seeds. " if table.seeds > 1 else ""
    note += "In brackets what the paper prints. " if table.printed else ""
    return (
        f"**{table.title}**\n\n"
        + "".join(f"| {' | '.join(line)} |\n" for line in lines)
        + (f"\n{note}\n" if note else "")
    )


def as_csv(table: Table) -> str:
    """A line per row and seed, as exact as it was measured, and the paper's as a seed of their own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "seed", *(number.name for number in table.numbers)])
    for line in table.lines:
        for seed in range(max((len(cell.values) for cell in line.cells), default=0)):
            writer.writerow(
                [line.name, seed, *(cell.values[seed] if seed < len(cell.values) else "" for cell in line.cells)]
            )
        if any(cell.printed is not None for cell in line.cells):
            printed = ["" if cell.printed is None else cell.printed for cell in line.cells]
            writer.writerow([line.name, "paper", *printed])
    return text.getvalue()


def as_latex(table: Table) -> str:
    """For booktabs."""
    heads = [_escaped(number.name) + (r" $\downarrow$" if number.sign < 0 else "") for number in table.numbers]
    rows = []
    for line in table.lines:
        cells = []
        for cell, number in zip(line.cells, table.numbers, strict=True):
            text = rf"\textbf{{{shown(cell, number)}}}" if cell.best else shown(cell, number)
            cells.append(
                text.replace(MISSING, "--")
                + (rf" {{\scriptsize $\pm$ {spread(cell, number)}}}" if spread(cell, number) else "")
            )
        rows.append(" & ".join([_escaped(line.name), *cells]) + r" \\")
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * len(heads)}}}",
            r"\toprule",
            " & ".join(["", *heads]) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _escaped(text: str) -> str:
    """
    >>> _escaped("icarl_sdc, 20 %")
    'icarl\\\\_sdc, 20 \\\\%'
    """
    for sign in "\\_%&#$":
        text = text.replace(sign, rf"\{sign}")
    return text
