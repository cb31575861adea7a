"""A table of numbers, and the ways to write it down."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from dhocl.report.paired import Difference, StreamKey, as_good, difference
from dhocl.report.reading import MISSING, NUMBERS, OPEN_AAUC, Number, written

MORE = [
    OPEN_AAUC,
    Number("ms_mistakes", "MS over mistakes only.", digits=2, sign=-1),
    Number("cost_vs_er", "Pixels passed through the network while learning; plain replay is 1.", digits=2, sign=-1),
    Number("state_mb", "Size of the learner's state at the end: network, buffer, heads, optimizer, in MB.", sign=-1),
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


BOLD = "Bold: the best row and, with several seeds, rows whose paired difference to it is not distinct from 0 (95 %)."
PAIRED = (
    "Paired differences to the best row of each column: mean ± half the 95 % interval (Student's t), in brackets the "
    "number of seeds that both rows have."
)


class Cell(NamedTuple):
    values: dict[StreamKey, float]
    printed: float | None  # in the paper
    best: bool = False  # or not distinct from the best
    gap: Difference | None = None  # to the best row of the column; None for that row itself


class Line(NamedTuple):
    name: str
    cells: list[Cell]


class Table(NamedTuple):
    title: str
    numbers: list[Number]
    lines: list[Line]
    seeds: int

    @property
    def paired(self) -> bool:
        """Some rows have several streams in common."""
        return any(cell.gap and cell.gap.pairs > 1 for line in self.lines for cell in line.cells)

    @property
    def printed(self) -> bool:
        return any(cell.printed is not None for line in self.lines for cell in line.cells)


def lookup(summary: Mapping[str, Any], path: str) -> float | None:
    """A number of a summary by its name, also inside another: by key, or by place among the levels from the finest up.

    >>> lookup({"open.AAUC": 50.0, "A_AUC": {"0": 70.0, "10": 30.0, "2": 40.0}}, "A_AUC.-1")
    30.0
    """
    if path in summary:
        return summary[path]  # type: ignore[no-any-return]
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
    summaries: Mapping[str, Mapping[StreamKey, Mapping[str, Any]]],
    printed: Mapping[str, Mapping[str, float]],
    bounds: Collection[str] = (),
) -> Table:
    """A line for each row of `summaries`, which are of its finished runs.

    Marked are the best mean of each number, and the rows whose paired difference to it is not distinct from 0. Rows
    named in `bounds` are there to be compared with and are not marked.
    """
    numbers = [KNOWN[name] for name in names]
    lines = []
    for row, found in summaries.items():
        cells = []
        for name in names:
            values = {key: lookup(summary, name) for key, summary in found.items()}
            known = {key: value for key, value in values.items() if value is not None}
            cells.append(Cell(known, printed.get(row, {}).get(name)))
        lines.append(Line(row, cells))
    for place, number in enumerate(numbers):
        column = {line.name: line.cells[place] for line in lines if line.cells[place].values}
        means = {row: number.sign * mean(cell.values.values()) for row, cell in column.items() if row not in bounds}
        if len(means) < 2:
            continue
        top = max(means, key=means.__getitem__)
        for line in lines:
            cell, best = line.cells[place], column[top]
            good = as_good(cell.values, best.values, alike=shown(cell, number) == shown(best, number))
            gap = None if line.name == top else difference(cell.values, best.values)
            line.cells[place] = cell._replace(best=line.name in means and good, gap=gap)
    return Table(title, numbers, lines, max((len(found) for found in summaries.values()), default=0))


def shown(cell: Cell, number: Number) -> str:
    """The mean."""
    return written(mean(cell.values.values()), number.digits) if cell.values else MISSING


def spread(cell: Cell, number: Number) -> str:
    """The standard deviation of a sample, nothing for a single one."""
    return written(stdev(cell.values.values()), number.digits) if len(cell.values) > 1 else ""


def told(cell: Cell, number: Number) -> str:
    """The paired difference to the best row, with a digit more, and the number of pairs."""
    if cell.gap is None:
        return "best" if cell.best else MISSING
    half = f" ± {written(cell.gap.half, number.digits + 1)}" if cell.gap.half is not None else ""
    return f"{cell.gap.mean:+,.{number.digits + 1}f}{half} ({cell.gap.pairs})"


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
    text = f"**{table.title}**\n\n" + _grid(lines) + f"\n{note}{BOLD}\n"
    if table.paired:
        gaps = [[line.name, *map(told, line.cells, table.numbers)] for line in table.lines]
        text += f"\n{PAIRED}\n\n" + _grid([*lines[:2], *gaps])
    return text


def _grid(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_csv(table: Table) -> str:
    """A line per row and seed, as exact as it was measured, and the paper's as a seed of their own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "seed", *(number.name for number in table.numbers)])
    for line in table.lines:
        for key in sorted({key for cell in line.cells for key in cell.values}):
            writer.writerow([line.name, key[0], *(cell.values.get(key, "") for cell in line.cells)])
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
