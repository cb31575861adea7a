"""Decoding: from probabilities per level to classes of the current tree and to paths through it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from dhocl.core.taxonomy import UNKNOWN, Taxonomy

Decoding = Literal["level", "path"]


def merge_synonyms(probabilities: dict[int, Tensor], taxonomy: Taxonomy) -> dict[int, Tensor]:
    """Probabilities (B, classes) per level of the learner's last update -> of the classes of the current tree.

    The probability of a merged class is added to its accepted class. Classes added since the update get 0. A level
    added since the update gets a uniform distribution.
    """
    widths = {level: p.shape[1] for level, p in probabilities.items()}
    if widths == taxonomy.widths and not taxonomy.merges:
        return probabilities
    whole = {}
    some = next(iter(probabilities.values()))
    for level, width in taxonomy.widths.items():
        p = probabilities.get(level)
        if p is None:
            whole[level] = some.new_full((len(some), width), 1 / width)
        else:
            accepted = taxonomy.ancestors(level, level)[: p.shape[1]]
            whole[level] = p.new_zeros(len(p), width).index_add(1, accepted, p)
    return whole


def known_paths(taxonomy: Taxonomy) -> Tensor:
    """(paths, levels) columns of the deepest known node of every branch and its ancestors, -1 where unknown."""

    def look() -> Tensor:
        leaves = [n for n in range(len(taxonomy)) if taxonomy.accepted(n) == n and not taxonomy.children(n)]
        return taxonomy.paths[torch.tensor(leaves, dtype=torch.long)]

    return taxonomy.derived("known paths", look)


def path_scores(probabilities: dict[int, Tensor], paths: Tensor) -> Tensor:
    """(B, paths) posterior over paths: softmax of the summed level log-probabilities.

    Where a path has no known class at a level, 1 / (number of classes of the level) is used.
    """
    score: Tensor | float = 0.0
    for place, p in enumerate(probabilities.values()):
        blank = p.new_full((len(p), 1), 1 / p.shape[1])
        score = score + torch.cat([p, blank], 1).clamp_min(1e-12).log()[:, paths[:, place]]  # -1 picks the blank
    assert isinstance(score, Tensor)
    return score.softmax(1)


def leaf_scores(marginals: dict[int, Tensor], paths: Tensor) -> Tensor:
    """(B, paths) posterior over paths, from marginals (B, classes) of a distribution over paths.

    A path has the probability of its last class, times that of paths that go on after the levels before. The marginals
    of a level are those of the paths that reach it. A class without a place may lie below one where a path ends: the
    path ends there only as far as no such class is probable.
    """
    known = paths != UNKNOWN  # (paths, levels)
    deeper = known.flip(1).cumsum(1).flip(1) - known.long() > 0  # a finer class is known
    ends, loose = known & ~deeper, ~known & deeper
    some = next(iter(marginals.values()))
    own = some.new_zeros(len(some), len(paths))  # probability of the last class
    for place, p in enumerate(marginals.values()):
        own[:, ends[:, place]] = p[:, paths[ends[:, place], place]]
    score, going_on = torch.zeros_like(own), some.new_ones(len(some), 1)
    for place in range(len(marginals)):
        here = ends[:, place]
        placed = (1 - own[:, loose[:, place]].sum(1, keepdim=True)).clamp_min(0)
        score[:, here] = going_on * own[:, here] * placed
        going_on = going_on * (1 - placed * own[:, here].sum(1, keepdim=True)).clamp_min(0)
    return score / score.sum(1, keepdim=True).clamp_min(1e-12)


def through(posterior: Tensor, columns: Tensor, width: int) -> Tensor:
    """(B, width) probability of the paths through each class: posterior (B, paths), columns (paths,), -1 for none."""
    named = columns != UNKNOWN
    return posterior.new_zeros(len(posterior), width).index_add(1, columns[named], posterior[:, named])


class Choice(NamedTuple):
    """What is predicted at one level."""

    p: Tensor  # (B, classes)
    column: Tensor  # (B,)


class Beliefs(NamedTuple):
    """Predictions of B images: of each level independently, and of the known paths."""

    levels: dict[int, Tensor]  # (B, classes) per level
    posterior: Tensor  # (B, paths)
    paths: Tensor  # (paths, levels) columns, -1 where a path has no class
    familiar: Mapping[int, Tensor] = MappingProxyType({})  # (B,) per level: how much an image is like known classes
    only: Mapping[int, float] = MappingProxyType({})  # level with one known class -> the probability of this class

    def rows(self, rows: slice) -> Beliefs:
        """Of some of the images."""
        levels = {level: p[rows] for level, p in self.levels.items()}
        familiar = {level: share[rows] for level, share in self.familiar.items()}
        return self._replace(levels=levels, posterior=self.posterior[rows], familiar=familiar)

    def marginal(self, row: int, place: int, column: int) -> float:
        """Probability of one class: the sum over the known paths through it. A parent's is never below a child's."""
        return float(self.posterior[row, self.paths[:, place] == column].sum())

    def marginals(self) -> dict[int, Tensor]:
        """(B, classes) per level: `marginal` of all classes, normalised over the paths that reach the level.

        Paths whose class at a level is unknown count by what the level by itself predicts.
        """
        found = {}
        known = self.paths != UNKNOWN
        for place, (level, p) in enumerate(self.levels.items()):
            loose = ~known[:, place] & known[:, place + 1 :].any(1)
            marginal = through(self.posterior, self.paths[:, place], p.shape[1])
            marginal = marginal + self.posterior[:, loose].sum(1, keepdim=True) * p
            found[level] = marginal / marginal.sum(1, keepdim=True).clamp_min(1e-12)
        return found

    def best_path(self) -> tuple[Tensor, Tensor]:
        """The path to predict of each image: (B, levels) columns with -1 for none; its probability (B,).

        It is the most probable one that reaches the finest level. A path that ends above competes at the level where it
        ends, with all paths through another class there, and with all that have no class there: a family without a
        known species has the probability of all its species, and would win against any species of another family.
        """
        known = self.paths != UNKNOWN  # (paths, levels)
        last = known.long().cumsum(1).argmax(1)  # (paths,) place of the last class
        early = last < known.shape[1] - 1
        best = self.posterior.masked_fill(early, -1.0).argmax(1)
        for place, p in reversed(list(enumerate(self.levels.values()))):  # the coarsest decides
            here = (early & (last == place)).nonzero()[:, 0]
            if len(here):
                loose = self.posterior[:, ~known[:, place] & (last > place)].sum(1)
                most = through(self.posterior, self.paths[:, place], p.shape[1]).max(1).values
                ending = self.posterior[:, here].max(1)
                best = torch.where(ending.values >= torch.maximum(most, loose), here[ending.indices], best)
        return self.paths[best], self.posterior.gather(1, best[:, None])[:, 0]

    def choices(self, decode: Decoding) -> dict[int, Choice]:
        """The predicted class of each level, and the probabilities of all classes.

        "level" treats the levels as independent. "path" takes the classes of the most probable path, with `marginal`
        of each class; where the path has no class, the best one by `marginals`.
        """
        if decode == "level":
            return {level: Choice(p, p.argmax(1)) for level, p in self.levels.items()}
        best, found, marginals = self.best_path()[0], {}, self.marginals()
        for place, (level, own) in enumerate(self.levels.items()):
            p, column = through(self.posterior, self.paths[:, place], own.shape[1]), best[:, place]
            none = column == UNKNOWN
            p = torch.where(none[:, None], marginals[level], p)
            found[level] = Choice(p, torch.where(none, p.argmax(1), column))
        return found


def restricted(beliefs: Beliefs, inside: Tensor) -> Beliefs:
    """The same if only some of the known paths are possible: inside (paths,), at least one of them.

    Their probabilities are divided by their sum. So are those of each level by itself, over the classes on these paths.
    """
    if inside.all():
        return beliefs
    paths, levels = beliefs.paths[inside], {}
    for place, (level, p) in enumerate(beliefs.levels.items()):
        there = torch.zeros(p.shape[1], dtype=torch.bool)
        there[paths[paths[:, place] != UNKNOWN, place]] = True
        levels[level] = _renormalised(p, there)
    posterior = _renormalised(beliefs.posterior, inside)[:, inside]
    return beliefs._replace(levels=levels, posterior=posterior, paths=paths)


def _renormalised(p: Tensor, kept: Tensor) -> Tensor:
    """(B, C) -> (B, C) with 0 for what is not kept (C,). Uniform over the kept if none of them has a probability."""
    p = p * kept
    total = p.sum(1, keepdim=True)
    return torch.where(total > 0, p / total, kept / kept.sum().clamp_min(1))


def believe(levels: dict[int, Tensor], taxonomy: Taxonomy, coherent: bool = False) -> Beliefs:
    """Beliefs from probabilities (B, classes) per level; coherent ones are marginals of a distribution over paths."""
    paths = known_paths(taxonomy)
    posterior = leaf_scores(levels, paths) if coherent else path_scores(levels, paths)
    return Beliefs(levels, posterior, paths)
