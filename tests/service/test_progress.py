from __future__ import annotations

import numpy as np
import pytest

from dhocl.service.progress import POINTS, RECENT, Progress


def test_progress_counts_and_remembers() -> None:
    progress, rights = Progress(["kind", "species"]), [True, False, False, True, True]
    for right in rights:
        progress.add("species", right)
    summary = progress.summary()
    assert summary["species"] == {"seen": 5, "correct": 3, "accuracy": 0.6, "recent": 0.6}
    assert summary["kind"] == {"seen": 0, "correct": 0, "accuracy": None, "recent": None}
    for _ in range(RECENT):
        progress.add("species", True)
    assert progress.summary()["species"]["recent"] == 1.0
    assert progress.summary()["species"]["accuracy"] == pytest.approx((3 + RECENT) / (5 + RECENT))


def test_a_long_history_stays_short_and_even() -> None:
    progress = Progress(["kind"])
    progress.add("kind", True)
    for learned in range(0, 200_000, 32):
        progress.mark(learned)
    points = [point["learned"] for point in progress.history]
    assert POINTS / 4 <= len(points) <= POINTS
    gaps = np.diff(points)
    assert gaps.min() > 0
    assert gaps.max() <= 4 * np.median(gaps)
    again = Progress(["kind"])
    again.load_state_dict(progress.state_dict())
    for each in (progress, again):
        each.mark(10**6)
    assert again.history == progress.history
