from __future__ import annotations

import numpy as np
import pytest

from dhocl.service.progress import MISTAKES, POINTS, RECENT, Progress


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


def test_confusions_are_those_of_the_newest_mistakes() -> None:
    progress = Progress(["kind", "species"])
    for place in range(MISTAKES + 2):
        progress.confuse("species", *((0, 1) if place < 5 else (2, 1)))
    assert progress.confusions() == {"kind": {}, "species": {(0, 1): 3, (2, 1): MISTAKES - 3}}
    again = Progress(["kind", "species"])
    again.load_state_dict(progress.state_dict())
    assert again.confusions() == progress.confusions()
    again.confuse("species", 3, 1)
    assert again.confusions()["species"] == {(0, 1): 2, (2, 1): MISTAKES - 3, (3, 1): 1}
    old = progress.state_dict()
    del old["mistakes"]
    empty = Progress(["kind", "species"])
    empty.load_state_dict(old)
    assert empty.confusions() == {"kind": {}, "species": {}}
