"""Balance unbalanced trees: nodes are repeated until every path has the depth of the tree.

A path has the names from a coarsest node to a leaf. A name is the same node in all paths. After padding, a name may
occur at several levels; (name, level) is unique.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

Path = tuple[str, ...]


def branching(paths: Sequence[Path]) -> list[Path]:
    """The paths without nodes that do not separate leaves: ancestors of all leaves, and nodes with one child.

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
    """Make all paths as long as the longest. Without a generator the parent of a leaf is repeated:

    >>> pad([("bird", "robin"), ("bird", "gull", "herring gull")])
    [('bird', 'bird', 'robin'), ('bird', 'gull', 'herring gull')]

    With one, any node above the leaf may be repeated. The first level of each inner node is drawn once, coarsest nodes
    first, so that all paths through it agree. The missing levels of a path are distributed at random over the nodes
    above its leaf, within what the longest path through a node allows. A leaf without a parent is repeated itself.
    """
    depth = max(map(len, paths))
    heights: dict[str, int] = {}  # of the subtree of a name, itself included
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
    """How often the parent of a node is repeated: each of `room` placeholders goes to one of `height` nodes at random.

    These are the parent and the nodes below it, down to the parent of the deepest leaf.
    """
    if height == 1:
        return room  # a leaf is at the last level
    return 0 if rng is None else int(rng.binomial(room, 1 / height))


def _stretched(path: Path, starts: dict[str, int], depth: int) -> Path:
    ends = [*(starts[name] for name in path[1:]), depth]
    return tuple(name for name, end in zip(path, ends, strict=True) for _ in range(starts[name], end))
