"""Recipes: a grid of runs, and the tables and figures of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from dhocl.experiment.config import RunConfig


class Scale(StrEnum):
    """`smoke` checks that everything runs; `mini` has a tenth of the images; `full` has all, with a small network.

    `paper` is the paper's setting.
    """

    smoke = "smoke"
    mini = "mini"
    full = "full"
    paper = "paper"


SEEDS = {Scale.smoke: 1, Scale.mini: 2, Scale.full: 3, Scale.paper: 5}

DINO = "hub:Ramos-Ramos/dino-resnet-50"  # the ResNet-50 of the paper, pretrained on ImageNet
UNNAMED = "hub:"  # chosen by the user: a backbone that was not trained on images of the stream
OPTIONAL = "{backbone}"  # in the name of a row: left out if the user chooses none
SMALL = {"backbone": "tiny", "image_size": 32, "samples": 440, "test_samples": 220, "buffer": 60, "batch": 16}
FINE = {"batch": 8, "replay_batch": 4, "image_size": 224, "backbone": DINO}
BASES: dict[Scale, dict[str, dict[str, Any]]] = {
    Scale.smoke: {"glyphs": SMALL | {"replay_batch": 8, "eval_every": 88}},
    Scale.mini: {
        "cifar100": {"samples": 6000, "test_samples": 2000, "image_size": 64, "buffer": 200},
        "cub200": {"samples": 3000, "test_samples": 1000, "image_size": 96, "buffer": 200},
        "glyphs": {"samples": 6000, "test_samples": 2000, "image_size": 64, "buffer": 200},
    },
    Scale.full: {
        "cifar100": {"image_size": 64, "eval_every": 1568, "eval_samples": 2500},
        "cub200": {
            "image_size": 96,
            "passes": 2,
            "batch": 8,
            "replay_batch": 4,
            "eval_every": 376,
            "eval_samples": 2500,
        },
        "glyphs": {"image_size": 64, "eval_every": 288, "eval_samples": 2500},
    },
    Scale.paper: {
        "cifar100": {"backbone": DINO, "image_size": 32, "eval_every": 1600},
        "aircraft": FINE | {"passes": 2},
        "cub200": FINE | {"passes": 2},
        "inaturalist2018": FINE | {"passes": 4, "buffer": 5000, "eval_every": 20000},
        "imagenet_h": FINE | {"backbone": UNNAMED, "buffer": 5000, "eval_every": 50000},
    },
}


class GridCell(NamedTuple):
    """A run of the grid, without its seed."""

    panel: str  # the table or the part of a figure that it belongs to; mostly a data set
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
    cells: Callable[[Scale], list[GridCell]]
    exhibits: tuple[Exhibit, ...]
    printed: Printed = field(default_factory=dict)


# -- grids ------------------------------------------------------------------------------------------------------


def panels(scale: Scale, *of_the_paper: str) -> list[str]:
    """The data sets of the paper that this scale has, or else its first data set."""
    there = [name for name in of_the_paper if name in BASES[scale]]
    return there or list(BASES[scale])[:1]


def config(
    scale: Scale, dataset: str, method: str, settings: Mapping[str, Any] | None = None, **more: Any
) -> RunConfig:
    return RunConfig(method=method, dataset=dataset, settings=dict(settings or {}), **BASES[scale][dataset] | more)


def grid(*datasets: str, rows: Mapping[str, Mapping[str, Any]]) -> Callable[[Scale], list[GridCell]]:
    """A grid of rows x data sets. `rows`: name -> arguments of `config`. For the data sets see `panels`.

    >>> cells = grid("cifar100", "aircraft", rows={"no memory": {"method": "er", "buffer": 0}})(Scale.mini)
    >>> [(cell.panel, cell.row, cell.config.buffer) for cell in cells]
    [('cifar100', 'no memory', 0)]
    """

    def cells(scale: Scale) -> list[GridCell]:
        return [
            GridCell(panel, name, config(scale, panel, **row))
            for panel in panels(scale, *datasets)
            for name, row in rows.items()
        ]

    return cells
