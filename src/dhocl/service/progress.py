"""Progressive (prequential) accuracy: every observation is predicted before it is learned."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

RECENT = 200  # observations per rank in the recent accuracy
MISTAKES = 500  # newest mistakes per rank that are counted as confusions
POINTS = 400  # largest length of the history

Pair = tuple[int, int]  # nodes of the true and of the predicted class


class Progress:
    def __init__(self, ranks: Sequence[str]) -> None:
        self._ranks = ranks
        self._seen = dict.fromkeys(ranks, 0)
        self._correct = dict.fromkeys(ranks, 0)
        self._recent: dict[str, deque[int]] = {rank: deque(maxlen=RECENT) for rank in ranks}
        self._mistakes: dict[str, deque[Pair]] = {rank: deque(maxlen=MISTAKES) for rank in ranks}
        self._history: list[dict[str, Any]] = []
        self._stride = 1

    def confuse(self, rank: str, true: int, predicted: int) -> None:
        """Count a mistake at a rank, where the true class was known before."""
        self._mistakes[rank].append((true, predicted))

    def add(self, rank: str, correct: bool) -> None:
        self._seen[rank] += 1
        self._correct[rank] += correct
        self._recent[rank].append(int(correct))

    def mark(self, learned: int) -> None:
        """Add a point to the history every `stride` observations. A history that is too long is thinned by half."""
        if self._history and learned < self._history[-1]["learned"] + self._stride:
            return
        accuracy = {rank: sum(recent) / len(recent) for rank, recent in self._recent.items() if recent}
        self._history.append({"learned": learned, "accuracy": accuracy})
        if len(self._history) > POINTS:
            self._history = self._history[::2]
            self._stride = 2 * max(self._stride, learned // POINTS)

    def summary(self) -> dict[str, Any]:
        """Counts and accuracies per rank; accuracies are None without observations."""
        return {
            rank: {
                "seen": self._seen[rank],
                "correct": self._correct[rank],
                "accuracy": _ratio(self._correct[rank], self._seen[rank]),
                "recent": _ratio(sum(self._recent[rank]), len(self._recent[rank])),
            }
            for rank in self._ranks
        }

    def confusions(self) -> dict[str, Counter[Pair]]:
        """How often each pair of classes is among the newest mistakes of a rank."""
        return {rank: Counter(mistakes) for rank, mistakes in self._mistakes.items()}

    @property
    def history(self) -> list[dict[str, Any]]:
        return list(self._history)

    def state_dict(self) -> dict[str, Any]:
        return {
            "seen": self._seen,
            "correct": self._correct,
            "recent": {rank: list(recent) for rank, recent in self._recent.items()},
            "mistakes": {rank: [list(pair) for pair in mistakes] for rank, mistakes in self._mistakes.items()},
            "history": self._history,
            "stride": self._stride,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._seen, self._correct = state["seen"], state["correct"]
        self._recent = {rank: deque(recent, maxlen=RECENT) for rank, recent in state["recent"].items()}
        for rank, pairs in state.get("mistakes", {}).items():  # an earlier version did not store them
            self._mistakes[rank] = deque(((true, predicted) for true, predicted in pairs), maxlen=MISTAKES)
        self._history, self._stride = state["history"], state["stride"]


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
