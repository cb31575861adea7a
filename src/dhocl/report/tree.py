"""The drawing of the growing tree. Positions of nodes do not change over time, so the slider only shows and hides."""

from __future__ import annotations

import json
from math import cos, degrees, pi, sin, sqrt, tau
from typing import Any, NamedTuple

from dhocl.core.taxonomy import UNKNOWN, Taxonomy

HALF = 500  # half the side of the drawing, whose origin is in its centre
HOLE = 40  # radius of the empty centre
GAP = 8  # between a node and its name
LETTER, HEIGHT = 6.3, 11  # width and height of a letter
LARGEST, ROOMY = 2.2, 60  # largest factor of the letters, and leaves from which it is 1
LEAST, LONGEST = 3, 26  # letters of a shortened name: at least, and at the finest level at most


class Node(NamedTuple):
    x: float
    y: float
    name: str
    rank: str
    place: int  # of its level, 0 for the coarsest
    loose: bool  # unanchored at the end
    label: str  # the name, shortened or empty if there is no room
    label_x: float
    label_y: float
    turn: float  # rotation of the label in degrees
    anchor: str  # text-anchor of the label


class Link(NamedTuple):
    child: int
    parent: int
    path: str
    last: bool  # whether it exists at the end


class Branch(NamedTuple):
    name: str
    rank: str
    loose: bool
    below: int
    children: list[Branch]


def walk(taxonomy: Taxonomy) -> list[int]:
    """All nodes, each followed by its descendants; siblings by arrival, roots of finer levels last."""
    found: list[int] = []
    stack = roots(taxonomy)[::-1]
    while stack:
        found.append(node := stack.pop())
        stack.extend(taxonomy.children(node)[::-1])
    return found


def roots(taxonomy: Taxonomy) -> list[int]:
    tops = [n for n in range(len(taxonomy)) if taxonomy.accepted(n) == n and taxonomy.parent(n) == UNKNOWN]
    return sorted(tops, key=lambda node: (taxonomy.labels[node].level, node))


def enlarged(taxonomy: Taxonomy) -> float:
    """Factor of the letters: a small tree has room for larger ones."""
    ends = sum(not taxonomy.children(node) for node in walk(taxonomy))
    return round(min(LARGEST, max(1.0, sqrt(ROOMY / max(1, ends)))), 2)


class Rings:
    """A circle for each level, the finest outermost with its names outside; other names are inside their circles."""

    def __init__(self, taxonomy: Taxonomy) -> None:
        levels, finest = taxonomy.levels, taxonomy.levels[-1]
        letter, self.height = (size * enlarged(taxonomy) for size in (LETTER, HEIGHT))
        names = [label.name for label in taxonomy if label.level == finest]
        crowded = tau * HALF / len(names) < self.height
        letters = 0 if crowded else min(LONGEST, max(LEAST, *map(len, names)))
        rim = HALF - 2 * GAP - letter * letters
        step = (rim - HOLE) / (len(levels) - 0.3)  # the last step is shorter: it has no names
        self.finest = finest
        self.radius = {level: HOLE + step * (place + 1) for place, level in enumerate(levels)} | {finest: rim}
        self.room = {level: int((step - 2 * GAP) / letter) for level in levels} | {finest: letters}
        self.letter = letter


def draw(taxonomy: Taxonomy, ranks: list[str]) -> list[Node]:
    """Nodes by id, on the ring of their level, at the mean angle of their descendants."""
    if not len(taxonomy):
        return []
    rings, angle, loose = Rings(taxonomy), angles(taxonomy), set(taxonomy.unanchored)
    named = {node for level in taxonomy.levels for node in _named(taxonomy, rings, level, angle)}
    nodes = []
    for node, label in enumerate(taxonomy.labels):
        radius, outside = rings.radius[label.level], label.level == rings.finest
        right = cos(angle[node]) >= 0
        nodes.append(
            Node(
                *_point(radius, angle[node]),
                label.name,
                ranks[label.level],
                taxonomy.levels.index(label.level),
                node in loose,
                _shorten(label.name, rings.room[label.level]) if node in named else "",
                *_point(radius + GAP if outside else radius - GAP, angle[node]),
                round(degrees(angle[node]) + (0 if right else 180), 1),
                "start" if outside == right else "end",
            )
        )
    return nodes


def angles(taxonomy: Taxonomy) -> list[float]:
    """Angles by node: leaves are evenly spaced, others are midway between their first and last child.

    A merged class has the angle of its accepted class.
    """
    order = walk(taxonomy)
    ends = [node for node in order if not taxonomy.children(node)]
    angle = [0.0] * len(taxonomy)
    for place, node in enumerate(ends):
        angle[node] = tau * (place + 0.5) / len(ends) - pi / 2
    for node in reversed(order):  # children before parents
        if children := taxonomy.children(node):
            angle[node] = (angle[children[0]] + angle[children[-1]]) / 2
    return [angle[taxonomy.accepted(node)] for node in range(len(taxonomy))]


def links(taxonomy: Taxonomy) -> list[Link]:
    """All links over time, without duplicates, as curves that start and end along the radius."""
    ever = dict.fromkeys((event.node, event.parent) for event in taxonomy.events if event.kind == "link")
    if not ever:
        return []
    rings, angle = Rings(taxonomy), angles(taxonomy)
    found = []
    for child, parent in ever:
        inner, outer = (rings.radius[taxonomy.labels[node].level] for node in (parent, child))
        middle = (inner + outer) / 2
        corners = [(inner, parent), (middle, parent), (middle, child), (outer, child)]
        start, *rest = ("{} {}".format(*_point(radius, angle[node])) for radius, node in corners)
        last = taxonomy.accepted(child) == child and taxonomy.parent(child) == parent
        found.append(Link(child, parent, f"M{start}C{' '.join(rest)}", last))
    return found


def events(taxonomy: Taxonomy) -> list[dict[str, Any]]:
    """The events, for the script of the page."""
    return [json.loads(event.to_json()) for event in taxonomy.events]


def branches(taxonomy: Taxonomy, ranks: list[str]) -> list[Branch]:
    """The tree as nested lists."""
    loose = set(taxonomy.unanchored)

    def branch(node: int) -> Branch:
        label, children = taxonomy.labels[node], [branch(child) for child in taxonomy.children(node)]
        below = sum(1 + child.below for child in children)
        return Branch(label.name, ranks[label.level], node in loose, below, children)

    return [branch(node) for node in roots(taxonomy)]


def _named(taxonomy: Taxonomy, rings: Rings, level: int, angle: list[float]) -> list[int]:
    """Nodes of a level whose names do not overlap; none if that leaves out more than half."""
    if rings.room[level] < LEAST:
        return []
    radius = rings.radius[level]
    narrowest = radius if level == rings.finest else radius - GAP - rings.letter * rings.room[level]
    nodes = sorted(taxonomy.nodes(level).tolist(), key=lambda node: angle[node])
    chosen = nodes[:1]
    for node in nodes[1:]:
        before, round_the_top = angle[node] - angle[chosen[-1]], angle[chosen[0]] + tau - angle[node]
        if min(before, round_the_top) * narrowest >= rings.height:
            chosen.append(node)
    return chosen if 2 * len(chosen) >= len(nodes) else []


def _shorten(name: str, room: int) -> str:
    return name if len(name) <= room else name[: room - 1].rstrip() + "…"


def _point(radius: float, angle: float) -> tuple[float, float]:
    return round(radius * cos(angle), 1), round(radius * sin(angle), 1)
