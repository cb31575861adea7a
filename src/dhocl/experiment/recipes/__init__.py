"""The experiments of the paper by name, in `table`. To add one, add an entry there."""

from __future__ import annotations

from dhocl.core.errors import InputError
from dhocl.experiment.recipes.basis import BASES, IMAGES, OPTIONAL, SEEDS, UNNAMED, Basis, Scale, basis_for, basis_of
from dhocl.experiment.recipes.recipe import (
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
    Statistics,
    Structure,
)
from dhocl.experiment.recipes.table import RECIPES

__all__ = [
    "BASES",
    "IMAGES",
    "OPTIONAL",
    "RECIPES",
    "SEEDS",
    "UNNAMED",
    "Across",
    "Bars",
    "Basis",
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
    "basis_for",
    "basis_of",
    "find_recipe",
]


def find_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise InputError(f"there is no recipe {name!r}: choose one of {', '.join(RECIPES)}")
    return RECIPES[name]
