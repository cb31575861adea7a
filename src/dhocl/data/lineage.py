"""Trees grown from lineages: the names on the way from the coarsest rank to a class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from dhocl.data import tabular
from dhocl.taxonomy import Label, Taxonomy


def carried(name: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a tree that comes with the package, in the order of the data set's own class numbers."""
    sheet = tabular.read(Path(__file__).parent / "trees" / f"{name}.tsv", "\t", columns)
    return [row.cells for row in sheet.rows]


def grow(lineages: Iterable[Sequence[str]]) -> tuple[Taxonomy, np.ndarray]:
    """The tree of all lineages, and the node at the end of each.

    >>> tree, leaves = grow([("bird", "robin"), ("bird", "wren")])
    >>> leaves.tolist(), tree.lineage(2)
    ([1, 2], [2, 0])
    """
    tree, leaves = Taxonomy(), []
    for lineage in lineages:
        path = [tree.add(Label(name, level)) for level, name in enumerate(lineage)]
        for parent, child in pairwise(path):
            tree.link(child, parent)
        leaves.append(path[-1])
    return tree, np.array(leaves, dtype=np.int64)


def told_apart(lineages: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Equally long lineages, where a name that a level has below several parents carries its parent's.

    >>> told_apart([("Moraceae", "Morus"), ("Sulidae", "Morus"), ("Sulidae", "Sula")])
    [('Moraceae', 'Morus (Moraceae)'), ('Sulidae', 'Morus (Sulidae)'), ('Sulidae', 'Sula')]
    """
    rows = list(lineages)
    told: list[tuple[str, ...]] = [()] * len(rows)
    for names in zip(*rows, strict=True):  # a level, from the coarsest: those above are told apart already
        parents = defaultdict(set)
        for name, above in zip(names, told, strict=True):
            parents[name].add(above[-1:])
        told = [
            (*above, name if len(parents[name]) == 1 else f"{name} ({above[-1]})")
            for name, above in zip(names, told, strict=True)
        ]
    return told


def readable(name: str) -> str:
    """A published identifier as words: names are read by people and by language models.

    >>> readable("fruit_and_vegetables")
    'fruit and vegetables'
    """
    return name.replace("_", " ")
