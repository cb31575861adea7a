"""Comparable times: the sides are measured alternately in one process, so that other load affects all alike."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Row(NamedTuple):
    """A line of the table; numbers under `json` are for programs."""

    what: str
    value: str
    json: dict[str, float]


def milliseconds(work: Callable[[], object], times: int = 1) -> float:
    """Per call."""
    began = time.perf_counter()
    for _ in range(times):
        work()
    return 1000 * (time.perf_counter() - began) / times


def take_turns(sides: Mapping[str, Callable[[], object]], turns: int, times: int = 1) -> dict[str, list[float]]:
    """Milliseconds per call of each side and turn, without the first turn."""
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name, work in sides.items():
            took = milliseconds(work, times)
            if turn:
                spent[name].append(took)
    return spent


def afresh(
    make: Callable[[], Mapping[str, Callable[[], object]]], instances: int, turns: int
) -> dict[str, list[float]]:
    """Turns of sides that are created several times: memory layout changes times by some percent."""
    spent: dict[str, list[float]] = defaultdict(list)
    for _ in range(instances):
        for name, took in take_turns(make(), turns).items():
            spent[name] += took
    return spent


def ratio(ours: list[float], bare: list[float]) -> float:
    """The median over the turns of ours / bare."""
    return statistics.median(a / b for a, b in zip(ours, bare, strict=True))


def excess(ours: list[float], bare: list[float]) -> float:
    """The median over the turns of ours - bare."""
    return statistics.median(a - b for a, b in zip(ours, bare, strict=True))
