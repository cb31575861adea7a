"""What predictions mean in the known tree: merged classes are one, and paths agree at all levels."""

from __future__ import annotations

import torch
from torch import Tensor

from dhocl.taxonomy import UNKNOWN, Taxonomy


def folded(probabilities: dict[int, Tensor], taxonomy: Taxonomy) -> dict[int, Tensor]:
    """Probabilities (B, classes) per level, as the learner last knew them -> those of today's classes.

    What falls on a merged class's column is its accepted class's. A class that came since has 0, and on a level that
    came since all are alike.
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
        return taxonomy.paths[torch.tensor(leaves)]

    return taxonomy.derived("known paths", look)


def path_scores(probabilities: dict[int, Tensor], paths: Tensor) -> Tensor:
    """(B, paths) posterior over paths: softmax of the summed level log-probabilities.

    Where a path has no known class at a level, it counts as one of the level's classes would on average.
    """
    score: Tensor | float = 0.0
    for place, p in enumerate(probabilities.values()):
        blank = p.new_full((len(p), 1), 1 / p.shape[1])
        score = score + torch.cat([p, blank], 1).clamp_min(1e-12).log()[:, paths[:, place]]  # -1 picks the blank
    assert isinstance(score, Tensor)
    return score.softmax(1)


def decode_paths(probabilities: dict[int, Tensor], taxonomy: Taxonomy) -> dict[int, Tensor]:
    """Probabilities (B, classes) per level -> per level the marginal over known paths, the same shapes."""
    paths = known_paths(taxonomy)
    posterior = path_scores(probabilities, paths)
    decoded = {}
    for place, (level, p) in enumerate(probabilities.items()):
        named = paths[:, place] != UNKNOWN
        marginal = torch.zeros_like(p).index_add(1, paths[named, place], posterior[:, named])
        decoded[level] = marginal / marginal.sum(1, keepdim=True).clamp_min(1e-12)
    return decoded


def best_path(probabilities: dict[int, Tensor], taxonomy: Taxonomy) -> tuple[Tensor, Tensor]:
    """The most probable known path of each image: (B, levels) columns with -1 for none, and its probability (B,)."""
    paths = known_paths(taxonomy)
    probability, best = path_scores(probabilities, paths).max(1)
    return paths[best], probability
