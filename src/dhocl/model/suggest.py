"""What to label next: the images of a pool whose labels would teach most.

A set S of images is worth Σᵢ dᵢ max_{j ∈ S ∪ learned} k(i, j), over the images i of the pool: how well S, with what was
learned, covers the images that the model doubts. dᵢ is the probability that the best path of image i is wrong
(uncertainty), k falls with the distance of features. An image near to what was learned is covered already (novelty),
one near to an earlier choice too (diversity), and one like many others covers many (typicality). Images are chosen
greedily, which is within 1 - 1/e of the best set, because the worth is submodular.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dhocl.core.decode import Beliefs
from dhocl.core.taxonomy import UNKNOWN

NEIGHBOURS = 20  # images that an image can cover, at most
NEAR = 10  # the distance to this neighbour is the width of the kernel
SURE = 0.8  # probability at which a rank needs no question


class Suggestion(NamedTuple):
    """An image to label, and why.

    Args:
        row: of the image.
        level: at which its label would teach most.
        score: by how much it raises the worth of the choice: doubted images that it covers.
        uncertainty: probability that the best known path is wrong, 0..1.
        novelty: 1 - similarity to the nearest image that was learned, 0..1.
    """

    row: int
    level: int
    score: float
    uncertainty: float
    novelty: float


def doubts(posterior: Tensor) -> Tensor:
    """(n,) probability that the best path is wrong, from posterior (n, paths).

    One path more than those known counts as likely as the average one, so that a model with one class is in doubt.
    """
    paths = posterior.shape[1]
    return 1 - posterior.max(1).values * (paths / (paths + 1))


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """(n, m) from a (n, D), b (m, D)."""
    return (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.t()).clamp_min(0)


class Kernel(NamedTuple):
    """Similarities inside a pool, of each image to its nearest ones only."""

    similarity: Tensor  # (n, m) of image i to its neighbours, itself included
    neighbours: Tensor  # (n, m) rows
    width: float  # squared

    @classmethod
    def of(cls, phi: Tensor) -> Kernel:
        """k = exp(-|φᵢ - φⱼ|² / 2w), with w the median squared distance to the NEAR-th neighbour: phi (n, D)."""
        nearest = squared_distances(phi, phi).topk(min(NEIGHBOURS, len(phi)), largest=False)
        width = max(float(nearest.values[:, min(NEAR, len(phi) - 1)].median()), 1e-12)
        return cls(torch.exp(-nearest.values / (2 * width)), nearest.indices, width)

    def covered(self, phi: Tensor, learned: Tensor | None) -> Tensor:
        """(n,) similarity of phi (n, D) to the nearest of what was learned (m, D)."""
        if learned is None or not len(learned):
            return torch.zeros(len(phi))
        return torch.exp(-squared_distances(phi, learned).min(1).values / (2 * self.width))


def choose(kernel: Kernel, doubt: Tensor, covered: Tensor, count: int) -> list[tuple[int, float]]:
    """Rows and gains of up to `count` images, greedily: doubt (n,), covered (n,). Of equal ones the first is taken."""
    k, neighbours = kernel.similarity, kernel.neighbours
    chosen: list[tuple[int, float]] = []
    left = torch.ones(len(doubt), dtype=torch.bool)
    for _ in range(min(count, len(doubt))):
        gains = doubt[:, None] * (k - covered[:, None]).clamp_min(0)  # (n, m)
        gain = torch.zeros(len(doubt)).index_add_(0, neighbours.flatten(), gains.flatten())
        row = int(gain.masked_fill(~left, -1).argmax())
        chosen.append((row, float(gain[row])))
        left[row] = False
        mine = (neighbours == row).nonzero()
        covered = covered.clone()
        covered[mine[:, 0]] = torch.maximum(covered[mine[:, 0]], k[mine[:, 0], mine[:, 1]])
    return chosen


class Looks(NamedTuple):
    """What the model says about the images of a pool, as far as it matters here."""

    doubt: Tensor  # (n,)
    path: Tensor  # (n,) the best known path
    gaps: Tensor  # (n, levels) bool: levels that a label of a finer level would not teach; the finest is none

    @classmethod
    def at(cls, beliefs: Beliefs | None, images: int, levels: int) -> Looks:
        """Of `images` images by beliefs, None if no class is known, with `levels` levels in all.

        A level is a gap of an image if its best path has no class there, and the level by itself is not sure. A label
        of a finer level would not reach it: a class is linked only to classes that somebody has named.
        """
        gaps = torch.ones(images, levels, dtype=torch.bool)
        gaps[:, -1] = False
        if beliefs is None:
            return cls(torch.ones(images), torch.zeros(images, dtype=torch.long), gaps)
        best = beliefs.best_path()[0]
        for place, (level, choice) in enumerate(beliefs.choices("path").items()):
            classes = choice.p.shape[1]
            sure = choice.p.gather(1, choice.column[:, None])[:, 0] * (classes / (classes + 1)) >= SURE
            gaps[:, level] &= (best[:, place] == UNKNOWN) & ~sure
        return cls(doubts(beliefs.posterior), beliefs.posterior.argmax(1), gaps)

    @classmethod
    def joined(cls, looks: Sequence[Looks]) -> Looks:
        return cls(*(torch.cat(parts) for parts in zip(*looks, strict=True)))


def ranks(looks: Looks, rows: Sequence[int]) -> list[int]:
    """The level at which to label each of these rows: its coarsest gap, or the finest level if it has none.

    A gap of a path is asked about once: the answer may close it for all images of the path.
    """
    asked: set[tuple[int, int]] = set()
    found = []
    for row in rows:
        gaps = looks.gaps[row].nonzero()[:, 0].tolist()
        fresh = [level for level in gaps if (level, int(looks.path[row])) not in asked]
        asked |= {(level, int(looks.path[row])) for level in fresh[:1]}
        found.append(fresh[0] if fresh else looks.gaps.shape[1] - 1)
    return found


def suggest(looks: Looks, phi: Tensor, learned: Tensor | None, count: int) -> list[Suggestion]:
    """The images to label next, best first.

    Args:
        looks: of the n images.
        phi: (n, D) features.
        learned: (m, D) features of images that were learned, if they are kept.
        count: images to suggest, at most.
    """
    if not len(phi):
        return []
    kernel = Kernel.of(phi)
    covered = kernel.covered(phi, learned)
    chosen = choose(kernel, looks.doubt, covered, count)
    levels = ranks(looks, [row for row, _ in chosen])
    return [
        Suggestion(row, level, gain, float(looks.doubt[row]), 1 - float(covered[row]))
        for (row, gain), level in zip(chosen, levels, strict=True)
    ]
