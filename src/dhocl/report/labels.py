"""Places for the names of points in a plot, so that they do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

GAP = 4.0  # between a point and its name
ROWS = 12  # shifts that are tried, up and down


class Box(NamedTuple):
    left: float
    bottom: float
    width: float
    height: float

    def meets(self, other: Box) -> bool:
        across = self.left < other.left + other.width and other.left < self.left + self.width
        return across and self.bottom < other.bottom + other.height and other.bottom < self.bottom + self.height


def place_names(points: Sequence[tuple[float, float]], widths: Sequence[float], height: float) -> list[Box]:
    """A box for the name of each point, the first ones nearest: right of it or left, then further up and down.

    All in one unit. A name that fits nowhere is at the right of its point.

    >>> [(box.left, box.bottom) for box in place_names([(0, 0), (0, 1)], [20, 20], 8)]
    [(4.0, -4.0), (-24.0, -3.0)]
    """
    dots = [Box(x - GAP / 2, y - GAP / 2, GAP, GAP) for x, y in points]
    placed: list[Box] = []
    for (x, y), width in zip(points, widths, strict=True):
        tried = [
            Box(left, y - height / 2 + turn * row * height, width, height)
            for row in range(ROWS)
            for turn in (1, -1)
            for left in (x + GAP, x - GAP - width)
        ]
        free = (box for box in tried if not any(box.meets(other) for other in (*placed, *dots)))
        placed.append(next(free, tried[0]))
    return placed
