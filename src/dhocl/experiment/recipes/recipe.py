"""Recipes: a grid of runs, and the tables and figures of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dhocl.experiment.config import RunConfig
from dhocl.experiment.recipes.basis import Basis, Scale, basis_of


class GridCell(NamedTuple):
    """A run of the grid, without its seed."""

    panel: str  # the table or figure that it belongs to: a data set, or `data set, condition`
    row: str
    config: RunConfig
    seeds: int | None = None  # at most so many; None: as many as the others


# -- tables and figures -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """A table for each panel: mean ± standard deviation over the seeds, and the results of the paper."""

    names: tuple[str, ...] = ("AAUC", "FAUC", "MS", "FFAcc", "open.AAUC")
    bounds: tuple[str, ...] = ()  # rows that are not compared for the best, such as upper bounds
    reference: str | None = None  # row that the others are compared with; None: the best


@dataclass(frozen=True)
class Across:
    """Methods under conditions: a table for each metric, and a plot of the first.

    A table has a line per condition and a column per method. A panel is `data set, condition`. If it has no condition,
    a row is `method condition`.
    """

    names: tuple[str, ...]
    reference: str | None = None  # method that the others are compared with; None: the best


@dataclass(frozen=True)
class Curves:
    """A score over the stream, one line per row."""

    score: str = "fine_accuracy"


@dataclass(frozen=True)
class Bars:
    """One metric, one bar per row."""

    name: str


@dataclass(frozen=True)
class Forest:
    """Paired differences of one metric to a row, with their intervals."""

    name: str
    reference: str


@dataclass(frozen=True)
class Front:
    """One metric against the cost of learning."""

    name: str = "AAUC"


@dataclass(frozen=True)
class Structure:
    """Distances between prototypes and in the tree, and their difference, at `record.MARKS` classes."""


@dataclass(frozen=True)
class Growth:
    """The known tree when this many classes of the finest level have arrived; None for all."""

    classes: tuple[int | None, ...] = (10, 50, None)


@dataclass(frozen=True)
class Holdings:
    """Images in memory per level, over the stream."""


@dataclass(frozen=True)
class Statistics:
    """Sizes of the data sets and their trees; needs no run."""


Exhibit = Numbers | Across | Curves | Bars | Forest | Front | Structure | Growth | Holdings | Statistics
Printed = Mapping[str, Mapping[str, Mapping[str, float]]]  # results of the paper: panel -> row -> metric -> value


@dataclass(frozen=True)
class Recipe:
    """An experiment: its runs at each scale, and what the report shows of them."""

    title: str
    where: str  # table or figure of the paper
    grid: Callable[[Basis], list[GridCell]]
    exhibits: tuple[Exhibit, ...]
    printed: Printed = field(default_factory=dict)

    def cells(self, scale: Scale) -> list[GridCell]:
        """On the data sets of a scale."""
        return self.grid(basis_of(scale))


# -- grids ------------------------------------------------------------------------------------------------------


def panels(basis: Basis, *of_the_paper: str) -> list[str]:
    """Those of the basis, or else its first data set."""
    there = [name for name in of_the_paper if name in basis.datasets]
    return there or list(basis.datasets)[:1]


def config(basis: Basis, panel: str, method: str, settings: Mapping[str, Any] | None = None, **more: Any) -> RunConfig:
    own = {"method": method, "settings": dict(settings or {})}
    return RunConfig(**{"dataset": panel, **basis.datasets[panel], **own, **more})


def grid(*datasets: str, rows: Mapping[str, Mapping[str, Any]]) -> Callable[[Basis], list[GridCell]]:
    """A grid of rows x data sets. `rows`: name -> arguments of `config`. For the data sets see `panels`.

    >>> cells = grid("cifar100", "aircraft", rows={"no memory": {"method": "er", "buffer": 0}})(basis_of(Scale.mini))
    >>> [(cell.panel, cell.row, cell.config.buffer) for cell in cells]
    [('cifar100', 'no memory', 0)]
    """

    def cells(basis: Basis) -> list[GridCell]:
        return [
            GridCell(panel, name, config(basis, panel, **row))
            for panel in panels(basis, *datasets)
            for name, row in rows.items()
        ]

    return cells
