"""Trees grown from lineages: the names on the way from the coarsest rank to a class, empty where one is not known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from dhocl.data import tabular
from dhocl.taxonomy import UNKNOWN, Label, Taxonomy


def carried(name: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a tree that comes with the package, in the order of the data set's own class numbers."""
    sheet = tabular.read(Path(__file__).parent / "trees" / f"{name}.tsv", "\t", columns)
    return [row.cells for row in sheet.rows]


def grow(lineages: Iterable[Sequence[str]]) -> tuple[Taxonomy, np.ndarray]:
    """The tree of all lineages, and the node at the end of each. Of several parents a node has the finest.

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


def told_apart(lineages: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Equally long lineages, where a name that a level has below several parents of one level carries its parent's.

    >>> told_apart([("Moraceae", "Morus"), ("Sulidae", "Morus"), ("Sulidae", "Sula")])
    [('Moraceae', 'Morus (Moraceae)'), ('Sulidae', 'Morus (Sulidae)'), ('Sulidae', 'Sula')]
    """
    rows = list(lineages)
    told: list[tuple[str, ...]] = [()] * len(rows)
    nearest: list[tuple[int, str]] = [(UNKNOWN, "")] * len(rows)  # level and name of what is known above
    for level, names in enumerate(zip(*rows, strict=True)):  # from the coarsest: those above are told apart already
        parents: dict[tuple[str, int], set[str]] = defaultdict(set)
        for name, (at, parent) in zip(names, nearest, strict=True):
            parents[name, at].add(parent)
        shared = {name for (name, _), found in parents.items() if name and len(found) > 1}
        named = [
            f"{name} ({parent})" if name in shared and parent else name
            for name, (_, parent) in zip(names, nearest, strict=True)
        ]
        told = [(*above, name) for above, name in zip(told, named, strict=True)]
        nearest = [(level, name) if name else above for above, name in zip(nearest, named, strict=True)]
    return told


def readable(name: str) -> str:
    """A published identifier as words: names are read by people and by language models.

    >>> readable("fruit_and_vegetables")
    'fruit and vegetables'
    """
    return name.replace("_", " ")
