"""Paired differences between rows that learned from the same streams, seed by seed.

The effect of a seed is the same for both rows and cancels, so the interval is much narrower than the spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt
from statistics import mean, stdev
from typing import NamedTuple

StreamKey = tuple[int, str]  # seed and hash of the stream
# The 97.5 % quantiles of Student's t with 1 to 30 degrees of freedom; beyond 30, the last is at most 4 % too large.
T = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)


class Difference(NamedTuple):
    mean: float
    half: float | None  # half the width of the 95 % interval around the mean; None for a single pair
    pairs: int

    @property
    def distinct(self) -> bool:
        """Whether the interval excludes 0."""
        return self.half is not None and abs(self.mean) > self.half


def difference(a: Mapping[StreamKey, float], b: Mapping[StreamKey, float]) -> Difference | None:
    """a - b over the keys that both have; None if there are none.

    >>> difference({(0, "x"): 3.0, (1, "y"): 5.0}, {(0, "x"): 1.0, (1, "z"): 4.0})
    Difference(mean=2.0, half=None, pairs=1)
    """
    gaps = [value - b[key] for key, value in a.items() if key in b]
    if not gaps:
        return None
    if len(gaps) == 1:
        return Difference(gaps[0], None, 1)
    half = T[min(len(gaps) - 1, len(T)) - 1] * stdev(gaps) / sqrt(len(gaps))
    return Difference(mean(gaps), half, len(gaps))


def by_seed(values: Mapping[StreamKey, float]) -> dict[StreamKey, float]:
    """The same values with keys of the seed alone, to pair rows whose streams differ, as with other numbers of groups.

    >>> by_seed({(0, "x"): 3.0, (1, "y"): 5.0})
    {(0, ''): 3.0, (1, ''): 5.0}
    """
    seeds = [seed for seed, _ in values]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"several values for a seed: {sorted(values)}")
    return {(seed, ""): value for (seed, _), value in values.items()}


def stands_out(best: Mapping[StreamKey, float], rivals: Iterable[Mapping[StreamKey, float]], direction: int) -> bool:
    """Whether a row is distinctly better than each rival that has several keys in common with it.

    False if there is no such rival. `direction` is 1 if higher is better, and -1 if lower is.
    """
    gaps = [gap for rival in rivals if (gap := difference(best, rival)) and gap.pairs > 1]
    return bool(gaps) and all(gap.distinct and direction * gap.mean > 0 for gap in gaps)
