"""`dhocl list`: names of methods, data sets, backbones and recipes."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

Kind = Literal["methods", "datasets", "backbones", "recipes"]


def list_(kind: Annotated[Kind | None, typer.Argument(help="What to list; default: everything.")] = None) -> None:
    """List methods, data sets, backbones and recipes, including those of other installed packages."""
    console = Console()
    for place, each in enumerate([kind] if kind else TABLES):
        if place:
            console.print()
        console.print(_table(*TABLES[each]()))


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column == columns[0])
    for row in rows:
        table.add_row(*map(Text, row))
    return table


Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]  # column names, rows


def _methods() -> Rows:
    from dhocl.core.outside import announced
    from dhocl.methods import METHODS
    from dhocl.methods.registry import find_method

    ours = [(name, method.summary, method.origin) for name, method in METHODS.items()]
    return ("method", "what it does", "from"), [*ours, *announced("method", METHODS, find_method)]


def _datasets() -> Rows:
    from dhocl.core.outside import announced
    from dhocl.data import DATASETS, find_dataset

    ours = [(name, info.summary, " / ".join(info.levels)) for name, info in DATASETS.items()]
    more = [
        (name, f"{about} ({package})", "") for name, about, package in announced("data set", DATASETS, find_dataset)
    ]
    return ("data set", "what it is", "levels"), [*ours, *more]


def _backbones() -> Rows:
    from dhocl.core.outside import announced
    from dhocl.nn.backbones import BACKBONES, find_backbone

    ours = [(name, info.summary) for name, info in BACKBONES.items()]
    hub = ("hub:NAME", "a model of a hub or of a local folder, with transformers: pip install 'dhocl[hub]'")
    own = ("features:DIM", "no network: feature vectors of your own encoder (`Classifier.learn_features`)")
    more = [(name, f"{about} ({package})") for name, about, package in announced("backbone", BACKBONES, find_backbone)]
    return ("backbone", "what it is"), [*ours, hub, own, *more]


def _recipes() -> Rows:
    from dhocl.experiment.recipes import RECIPES

    rows = [(name, recipe.title, recipe.where) for name, recipe in RECIPES.items()]
    return ("recipe", "what it shows", "in the paper"), [*rows]


TABLES = {"methods": _methods, "datasets": _datasets, "backbones": _backbones, "recipes": _recipes}
