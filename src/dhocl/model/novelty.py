"""None of these: does an image show a class that is not known yet?

The score of an image at a level is the entropy of its predicted classes, compared with that of a mere guess: an image
that resembles no known class resembles several of them a little. The score of every image of a known class is kept
before the image is learned. The share of recent ones with at least the score of a new image is how familiar the image
looks. Of images of known classes, a share α has a familiarity of at most α, whatever the method: familiarity is the
p-value of a conformal test, and a threshold on it is a rate of false alarms.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dhocl.core.decode import Beliefs
from dhocl.core.taxonomy import UNKNOWN, Taxonomy

WINDOW = 200  # scores that are kept per level; with more, they are out of date in a stream that drifts
FEWEST = 50  # scores for a familiarity


def strangeness(p: Tensor) -> Tensor:
    """(B, C) probabilities -> (B,) -Σ p log p - log C, at most 0.

    The number of classes grows, and with it the entropy of all predictions. Without log C, images would look stranger
    from day to day.
    """
    entropy: Tensor = torch.special.entr(p).sum(1)
    return entropy - math.log(p.shape[1])


def familiarity(scores: Tensor, recent: Tensor) -> Tensor:
    """(B,) (1 + number of recent scores that are at least as high) / (1 + n): scores (B,), recent (n,)."""
    higher = len(recent) - torch.searchsorted(recent.sort().values, scores)
    return (1 + higher) / (1 + len(recent))


class Novelty:
    """Recent scores of each level, and the number of labels."""

    def __init__(self) -> None:
        self._recent: dict[int, Tensor] = {}  # level -> (up to WINDOW,), newest last
        self._labels: dict[int, int] = {}  # level -> images with a class there

    def __call__(self, beliefs: Beliefs, taxonomy: Taxonomy) -> Beliefs:
        """The same with `familiar` and `only`."""
        known = {level: int((taxonomy.resolve(nodes) == nodes).sum()) for level, nodes in _nodes(taxonomy).items()}
        familiar = {
            level: familiarity(strangeness(p), self._recent[level])
            for level, p in beliefs.levels.items()
            if known[level] > 1 and len(self._recent.get(level, ())) >= FEWEST
        }
        only = {level: self._succession(level) for level, classes in known.items() if classes == 1}
        return beliefs._replace(familiar=familiar, only=only)

    def _succession(self, level: int) -> float:
        """Laplace's rule: how probable the only class is, after n images of it and none of another."""
        n = self._labels.get(level, 0)
        return (n + 1) / (n + 2)

    def update(self, before: Beliefs | None, y: Tensor, taxonomy: Taxonomy) -> None:
        """Labels y (B,), nodes, and what was predicted before these were learned.

        Only classes count that were known then: their columns are the first ones.
        """
        targets = taxonomy.complete(y)  # (B, levels)
        for place, level in enumerate(taxonomy.levels):
            columns = targets[:, place]
            named = columns != UNKNOWN
            self._labels[level] = self._labels.get(level, 0) + int(named.sum())
            if before is not None and level in before.levels and before.levels[level].shape[1] > 1:
                p = before.levels[level]
                scores = strangeness(p[named & (columns < p.shape[1])])
                self._recent[level] = torch.cat([self._recent.get(level, scores[:0]), scores])[-WINDOW:]

    def absorb(self, other: Novelty) -> None:
        """Go on as if the images of `other` had come before."""
        for level, scores in other._recent.items():
            self._recent[level] = torch.cat([scores, self._recent.get(level, scores[:0])])[-WINDOW:]
        for level, count in other._labels.items():
            self._labels[level] = self._labels.get(level, 0) + count

    def state_dict(self) -> dict[str, Any]:
        return {
            "recent": {str(level): scores for level, scores in self._recent.items()},
            "labels": {str(level): count for level, count in self._labels.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._recent = {int(level): scores.clone() for level, scores in state["recent"].items()}
        self._labels = {int(level): count for level, count in state["labels"].items()}


def _nodes(taxonomy: Taxonomy) -> dict[int, Tensor]:
    return {level: taxonomy.nodes(level) for level in taxonomy.levels}
