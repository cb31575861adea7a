"""What an experiment is: a grid of runs, and how to show what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from dhocl.config import RunConfig


class Scale(StrEnum):
    """To see that it works; to learn something in an hour or so on two cores; the paper's full setting."""

    smoke = "smoke"
    mini = "mini"
    paper = "paper"


SEEDS = {Scale.smoke: 1, Scale.mini: 2, Scale.paper: 5}

DINO = "hub:Ramos-Ramos/dino-resnet-50"  # the paper's ResNet-50, pretrained on ImageNet
UNNAMED = "hub:"  # the user names it: a backbone that never saw the images of the stream
SMALL = {"backbone": "tiny", "image_size": 32, "samples": 440, "test_samples": 220, "buffer": 60, "batch": 16}
FINE = {"batch": 8, "replay_batch": 4, "image_size": 224, "backbone": DINO}
BASES: dict[Scale, dict[str, dict[str, Any]]] = {
    Scale.smoke: {"glyphs": SMALL | {"replay_batch": 8, "eval_every": 88}},
    Scale.mini: {
        "cifar100": {"samples": 6000, "test_samples": 2000, "image_size": 64, "buffer": 200},
        "cub200": {"samples": 3000, "test_samples": 1000, "image_size": 96, "buffer": 200},
        "glyphs": {"samples": 6000, "test_samples": 2000, "image_size": 64, "buffer": 200},
    },
    Scale.paper: {
        "cifar100": {"backbone": DINO, "image_size": 32, "eval_every": 1600},
        "aircraft": FINE | {"passes": 2},
        "cub200": FINE | {"passes": 2},
        "inaturalist2018": FINE | {"passes": 4, "buffer": 5000, "eval_every": 20000},
        "imagenet_h": FINE | {"backbone": UNNAMED, "buffer": 5000, "eval_every": 50000},
    },
}


class Cell(NamedTuple):
    """A run of the grid, up to its seed."""

    panel: str  # the table or the half of a figure that it belongs to; mostly a data set
    row: str
    config: RunConfig


# -- what can be shown ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """A table for each panel: a line a row, mean ± standard deviation over the seeds, the paper's own beside them."""

    names: tuple[str, ...] = ("AAUC", "FAUC", "MS", "FFAcc", "open.AAUC")
    bounds: tuple[str, ...] = ()  # rows that take no part in what is best


@dataclass(frozen=True)
class Curves:
    """A score of every evaluation against the samples seen, a line a row."""

    score: str = "fine_accuracy"


@dataclass(frozen=True)
class Bars:
    """One number as a bar a row."""

    name: str


@dataclass(frozen=True)
class Structure:
    """Distances between prototypes, those of the tree, and their difference, at the moments of `record.MARKS`."""


@dataclass(frozen=True)
class Growth:
    """The known tree when this many classes of the finest level have come; None: all."""

    classes: tuple[int | None, ...] = (10, 50, None)


@dataclass(frozen=True)
class Holdings:
    """What a memory holds of each level, over time."""


@dataclass(frozen=True)
class Statistics:
    """The data sets and their trees; needs no run."""


Exhibit = Numbers | Curves | Bars | Structure | Growth | Holdings | Statistics
Printed = Mapping[str, Mapping[str, Mapping[str, float]]]  # panel -> row -> number -> as the paper prints it


@dataclass(frozen=True)
class Recipe:
    title: str
    where: str  # in the paper
    cells: Callable[[Scale], list[Cell]]
    exhibits: tuple[Exhibit, ...]
    printed: Printed = field(default_factory=dict)


# -- grids ------------------------------------------------------------------------------------------------------


def panels(scale: Scale, *of_the_paper: str) -> list[str]:
    """The data sets that stand in for the paper's at this scale."""
    there = [name for name in of_the_paper if name in BASES[scale]]
    return there or list(BASES[scale])[:1]


def config(
    scale: Scale, dataset: str, method: str, settings: Mapping[str, Any] | None = None, **more: Any
) -> RunConfig:
    return RunConfig(method=method, dataset=dataset, settings=dict(settings or {}), **BASES[scale][dataset] | more)


def grid(*datasets: str, rows: Mapping[str, Mapping[str, Any]]) -> Callable[[Scale], list[Cell]]:
    """Each row, named and with what `config` takes for it, on each of the paper's data sets or what stands in for them.

    >>> cells = grid("cifar100", "aircraft", rows={"no memory": {"method": "er", "buffer": 0}})(Scale.mini)
    >>> [(cell.panel, cell.row, cell.config.buffer) for cell in cells]
    [('cifar100', 'no memory', 0)]
    """

    def cells(scale: Scale) -> list[Cell]:
        return [
            Cell(panel, name, config(scale, panel, **row))
            for panel in panels(scale, *datasets)
            for name, row in rows.items()
        ]

    return cells
