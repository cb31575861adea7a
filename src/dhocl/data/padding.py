"""Unbalanced trees made balanced: every path gets the depth of the tree by repeating nodes on it.

A path is the names from a coarsest node to a leaf; a name stands for the same node wherever it occurs. Names repeat
at several levels afterwards, and (name, level) tells the placeholders apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

Path = tuple[str, ...]


def branching(paths: Sequence[Path]) -> list[Path]:
    """The paths without the nodes that tell no two leaves apart: those above all of them, and only children's parents.

    >>> branching([("thing", "animal", "bird", "robin"), ("thing", "animal", "bird", "wren"), ("thing", "car")])
    [('bird', 'robin'), ('bird', 'wren'), ('car',)]
    """
    leaves = {path[-1] for path in paths}
    shared = set.intersection(*map(set, paths))
    children = defaultdict(set)
    for path in paths:
        for parent, child in pairwise(path):
            children[parent].add(child)
    kept = leaves | {name for name, below in children.items() if len(below) > 1 and name not in shared}
    return [tuple(name for name in path if name in kept) for path in paths]


def pad(paths: Sequence[Path], rng: np.random.Generator | None = None) -> list[Path]:
    """The paths, all as long as the longest. Without a generator the parent of a leaf is repeated:

    >>> pad([("bird", "robin"), ("bird", "gull", "herring gull")])
    [('bird', 'bird', 'robin'), ('bird', 'gull', 'herring gull')]

    With one, any node above the leaf may be. The level that an inner node starts at is drawn once, from the coarsest
    down, so that all paths through it agree: what a path lacks is then dealt, as if by dice, to the nodes above its
    leaf, as far as the longest path through a node leaves room. A leaf without a parent is repeated itself.
    """
    depth = max(map(len, paths))
    heights: dict[str, int] = {}  # of the tree below a name, itself counted
    for path in paths:
        for place, name in enumerate(path):
            heights[name] = max(heights.get(name, 0), len(path) - place)
    starts: dict[str, int] = {}  # the first level of a name
    for path in paths:
        starts[path[0]] = 0
        for parent, name in pairwise(path):
            if name not in starts:
                first = starts[parent] + 1
                starts[name] = first + _delay(depth - first - heights[name], heights[name], rng)
    return [_stretched(path, starts, depth) for path in paths]


def _delay(room: int, height: int, rng: np.random.Generator | None) -> int:
    """How often the parent is repeated before a node: each of `room` placeholders falls on one of `height` nodes,
    which are the parent and those below it down to the parent of the deepest leaf.
    """
    if height == 1:
        return room  # a leaf ends at the last level
    return 0 if rng is None else int(rng.binomial(room, 1 / height))


def _stretched(path: Path, starts: dict[str, int], depth: int) -> Path:
    ends = [*(starts[name] for name in path[1:]), depth]
    return tuple(name for name, end in zip(path, ends, strict=True) for _ in range(starts[name], end))
