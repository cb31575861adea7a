"""Predictions by name: the one place where beliefs become names, for Python, the command line and the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dhocl.core.decode import Beliefs, Choice, Decoding
from dhocl.core.taxonomy import UNKNOWN, Taxonomy

DIGITS = 6  # of a probability in JSON
FALSE_ALARMS = 0.05  # share of the images of known classes that may be called new


class Guess(NamedTuple):
    """A class and its probability."""

    name: str
    probability: float

    def __str__(self) -> str:
        return f"{self.name} {self.probability:.2f}"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "probability": round(self.probability, DIGITS)}


class Prediction(NamedTuple):
    """What one image shows. It prints as a path: `Corvidae 0.91 > Corvus 0.62`, or `Corvidae 0.91 > new genus?`.

    Args:
        on_path: the most probable path of the known tree, level -> its class with a calibrated probability, coarsest
            first. A parent is never less probable than its child.
        levels: level -> its class. These are the classes of the path; a level where the path has no class has its own
            best one. With `decode="level"`, levels are treated as independent.
        alternatives: level -> the next best classes, as many as were asked for.
        new: the coarsest level at which the image shows none of the known classes; None if it looks familiar.
        only: levels at which one class alone is known, so that there was nothing to choose from.
        familiar: level -> share of images of known classes that look at least as strange. Missing if too few are known.
    """

    on_path: dict[str, Guess]
    levels: dict[str, Guess]
    alternatives: dict[str, tuple[Guess, ...]]
    new: str | None = None
    only: tuple[str, ...] = ()
    familiar: Mapping[str, float] = MappingProxyType({})

    def __repr__(self) -> str:
        if not self.is_coherent:
            return ", ".join(f"{level} {guess}" for level, guess in self.levels.items())
        shown = [self.shown(level) for level in self.on_path if level in self.not_new()]
        return " > ".join([*shown, f"new {self.new}?"] if self.new else shown)

    def shown(self, level: str) -> str:
        """The class of a level as text. Without a number if there was nothing to choose from."""
        guess = self.levels[level]
        return f"{guess.name} (only one {level} known)" if level in self.only else str(guess)

    def not_new(self) -> list[str]:
        """The levels above `new`, coarsest first."""
        levels = list(self.levels)
        return levels[: levels.index(self.new)] if self.new else levels

    @property
    def note(self) -> str:
        """What to know about the answer; mostly empty."""
        only = [f"only one {level} known" for level in self.only if level in self.on_path]
        return "; ".join([f"new {self.new}?", *only] if self.new else only)

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
        """The classes of the path above `new` that have at least this probability, coarsest first.

        The last is the answer.

        >>> path = {"family": Guess("Corvidae", 0.9), "genus": Guess("Corvus", 0.6)}
        >>> found = Prediction(path, path, {})
        >>> found, found.sure(0.8)
        (Corvidae 0.90 > Corvus 0.60, {'family': Guess(name='Corvidae', probability=0.9)})
        """
        above = self.not_new()
        return {level: guess for level, guess in self.on_path.items() if level in above and guess[1] >= confidence}

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
            "new": self.new,
            "only": list(self.only),
            "familiar": {level: round(share, DIGITS) for level, share in self.familiar.items()},
            "alternatives" if decode == "path" else "ranks": {
                level: [guess.to_json() for guess in guesses] for level, guesses in ranked.items()
            },
        }


def name_predictions(
    beliefs: Beliefs,
    taxonomy: Taxonomy,
    ranks: Sequence[str],
    decode: Decoding = "path",
    top: int = 1,
    false_alarms: float = FALSE_ALARMS,
) -> list[Prediction]:
    """A prediction for each image.

    Args:
        beliefs: of the images.
        taxonomy: the tree.
        ranks: names of the levels.
        decode: as for `Classifier.predict`.
        top: classes per level.
        false_alarms: share of the images of known classes that may be called new.
    """
    by_path = _doubted(beliefs.choices("path"), beliefs.only)
    chosen = by_path if decode == "path" else _doubted(beliefs.choices(decode), beliefs.only)
    new = [
        None if level is None else ranks[level]
        for level in first_new(beliefs.familiar, false_alarms, len(beliefs.posterior))
    ]
    ranked = {level: _best(choice, level, taxonomy, top) for level, choice in chosen.items()}
    along: dict[int, list[Guess]] = {}  # where the path has no class, the guess is not used
    for level, choice in by_path.items():
        p = choice.p.gather(1, choice.column[:, None])
        along[level] = [guess for (guess,) in _named(choice.column[:, None], p, level, taxonomy)]
    found = []
    only = tuple(ranks[level] for level in beliefs.only)
    for row, path in enumerate(beliefs.best_path()[0].tolist()):
        known = [level for level, column in zip(taxonomy.levels, path, strict=True) if column != UNKNOWN]
        found.append(
            Prediction(
                {ranks[level]: along[level][row] for level in known},
                {ranks[level]: guesses[row][0] for level, guesses in ranked.items() if guesses[row]},
                {ranks[level]: tuple(guesses[row][1:]) for level, guesses in ranked.items() if guesses[row]},
                new[row],
                only,
                {ranks[level]: float(share[row]) for level, share in beliefs.familiar.items()},
            )
        )
    return found


def first_new(familiar: Mapping[int, Tensor], false_alarms: float, images: int) -> list[int | None]:
    """The coarsest level of each image at which it shows none of the known classes; None if there is none.

    familiar (B,) per level. A class of a known species is of a known genus, so an image is new at a level only if it
    is at all finer ones. Thus no more than a share `false_alarms` of the images of known classes is new at any level.
    """
    found: list[int | None] = [None] * images
    new = torch.ones(images, dtype=torch.bool)
    for level in sorted(familiar, reverse=True):
        new = new & (familiar[level] <= false_alarms)
        found = [level if is_new else before for is_new, before in zip(new.tolist(), found, strict=True)]
    return found


def _doubted(choices: dict[int, Choice], only: Mapping[int, float]) -> dict[int, Choice]:
    """With the probability of the only class of a level, which bounds those of its descendants."""
    most, found = 1.0, {}
    for level, choice in choices.items():
        most = min(most, only.get(level, 1.0))
        found[level] = choice._replace(p=choice.p * most)
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
