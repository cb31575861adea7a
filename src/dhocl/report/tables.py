"""Tables of metrics as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from dhocl.report.paired import Difference, StreamKey, difference, stands_out
from dhocl.report.reading import MISSING, NUMBERS, OPEN_AAUC, Number, written

MORE = [
    OPEN_AAUC,
    *(number._replace(name=f"open.{number.name}") for number in NUMBERS if number.name in ("FAUC", "MS")),
    Number("ms_mistakes", "MS over mistakes only.", digits=2, sign=-1),
    Number("cost_vs_er", "Pixels passed through the network while learning, relative to ER.", digits=2, sign=-1),
    Number("state_mb", "Largest size of the learner's state: network, optimizer, heads, buffer, in MB.", sign=-1),
    Number("samples_per_second", "Samples learned per second on the machine of the run.", digits=0),
]
KNOWN = {number.name: number for number in [*NUMBERS, *MORE]} | {
    f"{name}.{place}": Number(f"{name} {level}", meaning, sign=sign)
    for place, level in ((-1, "finest"), (-2, "above"))
    for name, meaning, sign in (
        ("A_AUC", "Accuracy of the level, averaged over all evaluations, in percent.", 1),
        ("A_last", "Accuracy of the level at the end, in percent.", 1),
        (
            "F_last",
            "Forgetting: best accuracy of a class at an earlier group end minus the last, in percent points.",
            -1,
        ),
    )
}
KNOWN["level_ece.-1"] = Number("ECE finest", "Calibration error of the finest level at the end, in percent.", sign=-1)
KNOWN["pw_js.group_ends"] = Number(
    "pw-JS", "IIRC: precision-weighted Jaccard similarity of predicted and true labels at group ends, in percent."
)
KNOWN["level_accuracy.0"] = Number("coarsest", "Accuracy of the coarsest level at the last evaluation, in percent.")
KNOWN["structure.-1"] = Number(
    "correlation", "Correlation of the distances between prototypes of the finest level with those in the tree.", 2
)


class Cell(NamedTuple):
    values: dict[StreamKey, float]
    printed: float | None  # result of the paper
    best: bool = False  # the best of those with several seeds, and distinctly better than the others
    gap: Difference | None = None  # to the row that is compared with; None for this row itself
    top: bool = False  # the row that the others are compared with because it is the best


class Line(NamedTuple):
    name: str
    cells: list[Cell]


class Table(NamedTuple):
    title: str
    numbers: list[Number]
    lines: list[Line]
    seeds: int
    reference: str | None = None  # what the others are compared with; None: the best
    within: str = "column"  # what has the values of a metric that are compared

    @property
    def bold(self) -> str:
        """A sentence about what is bold."""
        return (
            f"Bold: the best of its {self.within}, if its paired difference to each of the others is distinct from 0 "
            "(95 %). One seed, or one common seed: not compared."
        )

    @property
    def compared_with(self) -> str:
        return self.reference or f"the best of the {self.within}"

    @property
    def paired(self) -> bool:
        """Whether any rows have several streams in common."""
        return any(cell.gap and cell.gap.pairs > 1 for line in self.lines for cell in line.cells)

    @property
    def averaging(self) -> str:
        """A sentence about what the cells are; empty if all rows have one seed."""
        if self.seeds < 2:
            return ""
        counts = {len(cell.values) for line in self.lines for cell in line.cells if cell.values}
        most = f"{'' if counts == {self.seeds} else 'up to '}{self.seeds} seeds"
        return f"Mean ± standard deviation over {most}{'; without ±: one seed' if 1 in counts else ''}."

    @property
    def printed(self) -> bool:
        return any(cell.printed is not None for line in self.lines for cell in line.cells)


def lookup(summary: Mapping[str, Any], path: str) -> float | None:
    """A metric of a summary by name. A dotted part is a key, or an index into the levels: -1 is the finest.

    >>> lookup({"open.AAUC": 50.0, "A_AUC": {"0": 70.0, "10": 30.0, "2": 40.0}}, "A_AUC.-1")
    30.0
    >>> lookup({"structure": {"prototypes.1": 0.5, "prototypes.2": 0.4}}, "structure.-1")
    0.4
    """
    if path in summary:
        return summary[path]  # type: ignore[no-any-return]
    value: Any = summary
    for key in path.split("."):
        if value is None:
            return None
        if key.startswith("-"):
            levels = sorted(value, key=lambda name: int(name.rpartition(".")[2]))
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
    reference: str | None = None,
) -> Table:
    """A table with a line for each row of `summaries`, its finished runs.

    Rows in `bounds` are not compared for the best. Differences are to the row `reference`, or to the best.
    """
    numbers = [KNOWN[name] for name in names]
    lines = []
    for row, found in summaries.items():
        lines.append(Line(row, [cell_of(found, name, printed.get(row, {})) for name in names]))
    for place, number in enumerate(numbers):
        column = compared({line.name: line.cells[place] for line in lines}, number.sign, bounds, reference)
        for line in lines:
            line.cells[place] = column[line.name]
    return Table(title, numbers, lines, max((len(found) for found in summaries.values()), default=0), reference)


def cell_of(summaries: Mapping[StreamKey, Mapping[str, Any]], name: str, printed: Mapping[str, float]) -> Cell:
    """A metric of runs, which may lack it."""
    values = {key: lookup(summary, name) for key, summary in summaries.items()}
    return Cell({key: value for key, value in values.items() if value is not None}, printed.get(name))


def compared(
    cells: Mapping[str, Cell], direction: int, bounds: Collection[str] = (), reference: str | None = None
) -> dict[str, Cell]:
    """The same cells of a metric, with the best marked, and differences to `reference` or to the best.

    The best has the best mean of those with several seeds. It is marked if it stands out from them.
    """
    means = {
        name: direction * mean(cell.values.values())
        for name, cell in cells.items()
        if len(cell.values) > 1 and name not in bounds
    }
    top = max(means, key=means.__getitem__, default=None)
    rivals = [cells[name].values for name in means.keys() - {top}]
    distinct = top is not None and stands_out(cells[top].values, rivals, direction)
    against = cells.get(reference or top or "")
    return {
        name: cell._replace(
            best=name == top and distinct,
            gap=difference(cell.values, against.values) if against and cell is not against else None,
            top=name == top and reference is None,
        )
        for name, cell in cells.items()
    }


def shown(cell: Cell, number: Number) -> str:
    """The mean as text."""
    return written(mean(cell.values.values()), number.digits) if cell.values else MISSING


def spread(cell: Cell, number: Number) -> str:
    """The sample standard deviation as text; empty for a single value."""
    return written(stdev(cell.values.values()), number.digits) if len(cell.values) > 1 else ""


def gap_text(cell: Cell, number: Number) -> str:
    """The paired difference, with one more digit, and the number of pairs."""
    if cell.gap is None:
        return "best" if cell.top else MISSING
    half = f" ± {written(cell.gap.half, number.digits + 1)}" if cell.gap.half is not None else ""
    return f"{cell.gap.mean:+,.{number.digits + 1}f}{half} ({cell.gap.pairs})"


def paired_note(table: Table) -> str:
    return (
        f"Paired differences to {table.compared_with}: mean ± half the 95 % interval (Student's t), and in brackets "
        "the number of common seeds."
    )


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
    note = f"{table.averaging} " if table.averaging else ""
    note += "In brackets the result of the paper. " if table.printed else ""
    text = f"**{table.title}**\n\n" + _grid(lines) + f"\n{note}{table.bold}\n"
    if table.paired:
        gaps = [[line.name, *map(gap_text, line.cells, table.numbers)] for line in table.lines]
        text += f"\n{paired_note(table)}\n\n" + _grid([*lines[:2], *gaps])
    return text


def _grid(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_csv(table: Table) -> str:
    """A line per row and seed with full precision; the results of the paper have the seed "paper"."""
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
    """A LaTeX table for the package booktabs."""
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
