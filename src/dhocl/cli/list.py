"""`dhocl list`: what can be chosen."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


class Kind(StrEnum):
    methods = "methods"
    datasets = "datasets"
    backbones = "backbones"
    recipes = "recipes"


def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """What can be chosen."""
    from dhocl.backbones import BACKBONES
    from dhocl.data import DATASETS
    from dhocl.methods import METHODS
    from dhocl.recipes import RECIPES

    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    if kind is Kind.methods:
        columns, rows = (
            ("method", "what it does", "from"),
            [(n, m.summary, m.origin) for n, m in METHODS.items()],
        )
    elif kind is Kind.datasets:
        columns, rows = (
            ("data set", "what it is", "levels"),
            [(name, info.summary, " / ".join(info.levels)) for name, info in DATASETS.items()],
        )
    elif kind is Kind.recipes:
        columns, rows = (
            ("recipe", "what it shows", "in the paper"),
            [(name, recipe.title, recipe.where) for name, recipe in RECIPES.items()],
        )
    else:
        columns, rows = ("backbone", "what it is"), [(name, entry.about) for name, entry in BACKBONES.items()]
        rows.append(("hub:NAME", "a model of a hub or a local folder, through transformers: pip install 'dhocl[hub]'"))
    for column in columns:
        table.add_column(column, no_wrap=column == columns[0])
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
