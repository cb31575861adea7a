"""What a model believes of images, in the words of the service: calibrated ranks, and one consistent path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dhocl.decode import path_scores
from dhocl.service.calibration import sharpened
from dhocl.taxonomy import UNKNOWN, Taxonomy


class Beliefs(NamedTuple):
    ranks: dict[int, Tensor]  # (B, classes) per level
    posterior: Tensor  # (B, paths)
    paths: Tensor  # (paths, levels) columns, -1 where a path has no class

    def marginal(self, row: int, place: int, column: int) -> float:
        """Probability of a node: that of all known paths through it. So a parent's is never less than its child's."""
        return float(self.posterior[row, self.paths[:, place] == column].sum())


def believe(p: dict[int, Tensor], paths: Tensor, betas: Mapping[int, float], path_beta: float) -> Beliefs:
    """From raw probabilities (B, classes) per level, with a sharpness for each level and one for paths."""
    ranks = {level: sharpened(values, betas[level]) for level, values in p.items()}
    return Beliefs(ranks, sharpened(path_scores(ranks, paths), path_beta), paths)


def described(beliefs: Beliefs, row: int, taxonomy: Taxonomy, names: list[str], confidence: float) -> dict[str, Any]:
    """One image's answer; `names` are those of the ranks, by level."""

    def guess(level: int, column: int, probability: float) -> dict[str, Any]:
        label = taxonomy.labels[int(taxonomy.nodes(level)[column])]
        return {"rank": names[level], "name": label.name, "probability": min(1.0, probability)}

    tops = {level: p[row].max(0) for level, p in beliefs.ranks.items()}
    ranks = [guess(level, int(top.indices), float(top.values)) for level, top in tops.items()]
    best = beliefs.paths[torch.argmax(beliefs.posterior[row])].tolist()
    path = [
        guess(level, column, beliefs.marginal(row, place, column))
        for place, (level, column) in enumerate(zip(taxonomy.levels, best, strict=True))
        if column != UNKNOWN
    ]
    sure = [node for node in path if node["probability"] >= confidence]
    return {
        "ranks": {found.pop("rank"): found for found in ranks},
        "path": path,
        "answer": sure[-1] if sure else None,
    }
