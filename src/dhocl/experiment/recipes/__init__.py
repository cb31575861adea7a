"""The experiments of the paper by name, in `table`. To add one, add an entry there."""

from __future__ import annotations

from dhocl.core.errors import InputError
from dhocl.experiment.recipes.recipe import (
    BASES,
    OPTIONAL,
    SEEDS,
    UNNAMED,
    Across,
    Bars,
    Curves,
    Exhibit,
    Forest,
    Front,
    GridCell,
    Growth,
    Holdings,
    Numbers,
    Recipe,
    Scale,
    Statistics,
    Structure,
)
from dhocl.experiment.recipes.table import RECIPES

__all__ = [
    "BASES",
    "OPTIONAL",
    "RECIPES",
    "SEEDS",
    "UNNAMED",
    "Across",
    "Bars",
    "Curves",
    "Exhibit",
    "Forest",
    "Front",
    "GridCell",
    "Growth",
    "Holdings",
    "Numbers",
    "Recipe",
    "Scale",
    "Statistics",
    "Structure",
    "find_recipe",
]


def find_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise InputError(f"there is no recipe {name!r}: choose one of {', '.join(RECIPES)}")
    return RECIPES[name]
