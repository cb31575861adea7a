"""Predictions by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dhocl.core.decode import Beliefs, Choice, Decoding
from dhocl.core.taxonomy import UNKNOWN, Taxonomy


class Guess(NamedTuple):
    """A class and its probability."""

    name: str
    probability: float

    def __str__(self) -> str:
        return f"{self.name} {self.probability:.2f}"


class Prediction(NamedTuple):
    """What one image shows. It prints as a path: `Corvidae 0.91 > Corvus 0.62`.

    Args:
        levels: level -> its class, with a calibrated probability. They lie on `path`; a level where the path has no
            class has its own best one. With `decode="level"`, levels are treated as independent.
        path: the most probable path of the known tree, level -> name, coarsest first.
        probability: of that path.
        alternatives: level -> the next best classes, as many as were asked for.
    """

    levels: dict[str, Guess]
    path: dict[str, str]
    probability: float
    alternatives: dict[str, tuple[Guess, ...]]

    def __repr__(self) -> str:
        if self.is_coherent:
            return " > ".join(str(self.levels[level]) for level in self.path)
        return ", ".join(f"{level} {guess}" for level, guess in self.levels.items())

    @property
    def is_coherent(self) -> bool:
        """Whether the classes of `levels` are those of the path."""
        return all(self.levels[level].name == name for level, name in self.path.items())

    def sure(self, confidence: float) -> dict[str, Guess]:
        """The classes of the path that have at least this probability, coarsest first. The last is the answer.

        >>> levels = {"family": Guess("Corvidae", 0.9), "genus": Guess("Corvus", 0.6)}
        >>> found = Prediction(levels, {"family": "Corvidae", "genus": "Corvus"}, 0.6, {})
        >>> found, found.sure(0.8)
        (Corvidae 0.90 > Corvus 0.60, {'family': Guess(name='Corvidae', probability=0.9)})
        """
        on_path = {level: self.levels[level] for level, name in self.path.items() if self.levels[level].name == name}
        return {level: guess for level, guess in on_path.items() if guess.probability >= confidence}


def name_predictions(
    beliefs: Beliefs, taxonomy: Taxonomy, ranks: Sequence[str], decode: Decoding, top: int
) -> list[Prediction]:
    """A prediction for each image; `ranks` are the names of levels, `top` is the number of classes per level."""
    names = taxonomy.derived("names by column", lambda: _names(taxonomy))
    paths, scores = beliefs.best_path()
    choices = beliefs.choices(decode)
    guesses = {level: _best(choice, names[level], top) for level, choice in choices.items()}
    found = []
    for row, (path, score) in enumerate(zip(paths.tolist(), scores.tolist(), strict=True)):
        ranked = {ranks[level]: best[row] for level, best in guesses.items()}
        named = {
            ranks[level]: names[level][column]
            for level, column in zip(taxonomy.levels, path, strict=True)
            if column != UNKNOWN
        }
        others = {rank: tuple(rest) for rank, (_, *rest) in ranked.items()}
        found.append(Prediction({rank: first for rank, (first, *_) in ranked.items()}, named, score, others))
    return found


def _names(taxonomy: Taxonomy) -> dict[int, list[str]]:
    return {level: [taxonomy.labels[node].name for node in taxonomy.nodes(level).tolist()] for level in taxonomy.levels}


def _best(choice: Choice, names: Sequence[str], top: int) -> list[list[Guess]]:
    """For each image the chosen class, then the next best ones."""
    chosen = choice.p.gather(1, choice.column[:, None])[:, 0].tolist()
    best = choice.p.topk(min(top, choice.p.shape[1]))
    found = []
    rows = zip(choice.column.tolist(), chosen, best.indices.tolist(), best.values.tolist(), strict=True)
    for own, probability, columns, values in rows:
        others = [Guess(names[c], min(1.0, p)) for c, p in zip(columns, values, strict=True) if c != own and p > 0]
        found.append([Guess(names[own], min(1.0, probability)), *others[: top - 1]])
    return found
