"""Suggestions by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dhocl.classifier.prediction import Prediction
from dhocl.model.suggest import Suggestion


class Suggested(NamedTuple):
    """An image to label next. It prints as the rank to name, and what is predicted: `species of Corvidae 0.91`.

    Args:
        row: of the image among those given.
        level: at which its label would teach most.
        score: doubted images like it, that neither what was learned nor an earlier suggestion covers.
        uncertainty: probability that the predicted path is wrong.
        novelty: 1 - similarity to the nearest image that was learned.
        prediction: what it shows as far as is known; None if nothing is learned.
    """

    row: int
    level: str
    score: float
    uncertainty: float
    novelty: float
    prediction: Prediction | None

    def __repr__(self) -> str:
        return f"{self.level} of {self.prediction}" if self.prediction else self.level


def name_suggestions(
    found: Sequence[Suggestion], predictions: Sequence[Prediction | None], levels: Sequence[str]
) -> list[Suggested]:
    return [
        Suggested(s.row, levels[s.level], s.score, s.uncertainty, s.novelty, prediction)
        for s, prediction in zip(found, predictions, strict=True)
    ]
