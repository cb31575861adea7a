"""Predictions by name: the one place where beliefs become names, for Python, the command line and the service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dhocl.core.decode import Beliefs, Choice, Decoding
from dhocl.core.taxonomy import UNKNOWN, Taxonomy

DIGITS = 6  # of a probability in JSON


class Guess(NamedTuple):
    """A class and its probability."""

    name: str
    probability: float

    def __str__(self) -> str:
        return f"{self.name} {self.probability:.2f}"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "probability": round(self.probability, DIGITS)}


class Prediction(NamedTuple):
    """What one image shows. It prints as a path: `Corvidae 0.91 > Corvus 0.62`.

    Args:
        on_path: the most probable path of the known tree, level -> its class with a calibrated probability, coarsest
            first. A parent is never less probable than its child.
        levels: level -> its class. These are the classes of the path; a level where the path has no class has its own
            best one. With `decode="level"`, levels are treated as independent.
        alternatives: level -> the next best classes, as many as were asked for.
    """

    on_path: dict[str, Guess]
    levels: dict[str, Guess]
    alternatives: dict[str, tuple[Guess, ...]]

    def __repr__(self) -> str:
        if self.is_coherent:
            return " > ".join(map(str, self.on_path.values()))
        return ", ".join(f"{level} {guess}" for level, guess in self.levels.items())

    @property
    def path(self) -> dict[str, str]:
        """The names on the path, coarsest first."""
        return {level: guess.name for level, guess in self.on_path.items()}

    @property
    def probability(self) -> float:
        """Of the whole path, which is that of its last class."""
        return list(self.on_path.values())[-1].probability

    @property
    def is_coherent(self) -> bool:
        """Whether the classes of `levels` are those of the path."""
        return all(self.levels[level].name == guess.name for level, guess in self.on_path.items())

    def sure(self, confidence: float) -> dict[str, Guess]:
        """The classes of the path that have at least this probability, coarsest first. The last is the answer.

        >>> path = {"family": Guess("Corvidae", 0.9), "genus": Guess("Corvus", 0.6)}
        >>> found = Prediction(path, path, {})
        >>> found, found.sure(0.8)
        (Corvidae 0.90 > Corvus 0.60, {'family': Guess(name='Corvidae', probability=0.9)})
        """
        return {level: guess for level, guess in self.on_path.items() if guess.probability >= confidence}

    def to_json(self, confidence: float = 0.0, decode: Decoding = "path") -> dict[str, Any]:
        """The path, the answer, and the other classes of each level; with "level", each level by itself instead.

        >>> path = {"family": Guess("Corvidae", 0.9)}
        >>> Prediction(path, path | {"genus": Guess("Pica", 0.6)}, {"family": (), "genus": ()}).to_json(0.8)["answer"]
        {'rank': 'family', 'name': 'Corvidae', 'probability': 0.9}
        """
        path = {level: {"rank": level, **guess.to_json()} for level, guess in self.on_path.items()}
        ranked = {level: [guess, *self.alternatives[level]] for level, guess in self.levels.items()}
        if decode == "path":
            ranked = {level: guesses[level in path :] for level, guesses in ranked.items()}
        return {
            "path": list(path.values()),
            "answer": next((path[level] for level in reversed(self.sure(confidence))), None),
            "alternatives" if decode == "path" else "ranks": {
                level: [guess.to_json() for guess in guesses] for level, guesses in ranked.items()
            },
        }


def name_predictions(
    beliefs: Beliefs, taxonomy: Taxonomy, ranks: Sequence[str], decode: Decoding = "path", top: int = 1
) -> list[Prediction]:
    """A prediction for each image; `ranks` are the names of levels, `top` is the number of classes per level."""
    by_path = beliefs.choices("path")
    chosen = by_path if decode == "path" else beliefs.choices(decode)
    ranked = {level: _best(choice, level, taxonomy, top) for level, choice in chosen.items()}
    along: dict[int, list[Guess]] = {}  # where the path has no class, the guess is not used
    for level, choice in by_path.items():
        p = choice.p.gather(1, choice.column[:, None])
        along[level] = [guess for (guess,) in _named(choice.column[:, None], p, level, taxonomy)]
    found = []
    for row, path in enumerate(beliefs.best_path()[0].tolist()):
        known = [level for level, column in zip(taxonomy.levels, path, strict=True) if column != UNKNOWN]
        found.append(
            Prediction(
                {ranks[level]: along[level][row] for level in known},
                {ranks[level]: guesses[row][0] for level, guesses in ranked.items() if guesses[row]},
                {ranks[level]: tuple(guesses[row][1:]) for level, guesses in ranked.items() if guesses[row]},
            )
        )
    return found


def _named(columns: Tensor, p: Tensor, level: int, taxonomy: Taxonomy) -> list[list[Guess]]:
    """Columns (B, k) of a level and their probabilities (B, k), by name."""
    nodes = taxonomy.nodes(level)[columns].tolist()
    return [
        [Guess(taxonomy.labels[node].name, min(1.0, value)) for node, value in zip(row, values, strict=True)]
        for row, values in zip(nodes, p.tolist(), strict=True)
    ]


def _best(choice: Choice, level: int, taxonomy: Taxonomy, top: int) -> list[list[Guess]]:
    """For each image the chosen class, then the next best ones. None if no class of the level is possible."""
    own = choice.column[:, None]  # (B, 1)
    others = choice.p.scatter(1, own, -1.0).topk(min(top, choice.p.shape[1]) - 1)
    columns = torch.cat([own, others.indices], 1)
    named = _named(columns, choice.p.gather(1, columns), level, taxonomy)
    return [[guess for guess in guesses if guess.probability > 0] for guesses in named]
