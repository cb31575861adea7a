"""How fast this machine is, so that bounds of time hold on a slow one, too."""

from __future__ import annotations

import time

USUAL = 0.08  # seconds for a million additions


def slowness() -> float:
    """How many times slower than usual it is now, beside the other tests; at least 1."""
    began, total = time.perf_counter(), 0
    for number in range(1_000_000):
        total += number
    return max(1.0, (time.perf_counter() - began) / USUAL)
