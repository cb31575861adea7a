"""Trees from lineages. A lineage has the names from the coarsest rank to a class, empty where unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy
from dhocl.data import tabular


def bundled(name: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a tree file of this package, in the order of the class numbers of the data set."""
    sheet = tabular.read(Path(__file__).parent / "trees" / f"{name}.tsv", "\t", columns)
    return [row.cells for row in sheet.rows]


def grow(lineages: Iterable[Sequence[str]]) -> tuple[Taxonomy, np.ndarray]:
    """The tree of all lineages, and the last node of each, (n,). Of several parents the finest is used.

    >>> tree, leaves = grow([("bird", "robin"), ("bird", "wren")])
    >>> leaves.tolist(), tree.lineage(2)
    ([1, 2], [2, 0])
    """
    tree, leaves = Taxonomy(), []
    for lineage in lineages:
        path = [tree.add(Label(name, level)) for level, name in enumerate(lineage) if name]
        for parent, child in pairwise(path):
            present = tree.parent(child)
            if present == UNKNOWN or tree.labels[present].level < tree.labels[parent].level:
                tree.link(child, parent)
        leaves.append(path[-1])
    return tree, np.array(leaves, dtype=np.int64)


def disambiguate(lineages: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Append the parent's name to each name that occurs below several parents. Lineages must be equally long.

    >>> disambiguate([("Moraceae", "Morus"), ("Sulidae", "Morus"), ("Sulidae", "Sula")])
    [('Moraceae', 'Morus (Moraceae)'), ('Sulidae', 'Morus (Sulidae)'), ('Sulidae', 'Sula')]
    """
    rows = list(lineages)
    unique: list[tuple[str, ...]] = [()] * len(rows)
    nearest: list[tuple[int, str]] = [(UNKNOWN, "")] * len(rows)  # level and name of the nearest known ancestor
    for level, names in enumerate(zip(*rows, strict=True)):  # coarsest first: the names of ancestors are unique by now
        parents: dict[tuple[str, int], set[str]] = defaultdict(set)
        for name, (at, parent) in zip(names, nearest, strict=True):
            parents[name, at].add(parent)
        shared = {name for (name, _), found in parents.items() if name and len(found) > 1}
        named = [
            f"{name} ({parent})" if name in shared and parent else name
            for name, (_, parent) in zip(names, nearest, strict=True)
        ]
        unique = [(*above, name) for above, name in zip(unique, named, strict=True)]
        nearest = [(level, name) if name else above for above, name in zip(nearest, named, strict=True)]
    return unique


def readable(name: str) -> str:
    """A published identifier as words, because people and language models read names.

    >>> readable("fruit_and_vegetables")
    'fruit and vegetables'
    """
    return name.replace("_", " ")
