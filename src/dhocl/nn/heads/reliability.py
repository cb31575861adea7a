"""Reliability of levels: one distribution over paths from the outputs of all levels, calibrated out of sample.

p(path) ∝ exp Σ_h β_h z_h(class of the path at level h). β_h says how much to trust level h. The β are fitted to samples
whose outputs are computed as if they had not been learned (`ridge.leave_one_out`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN

START = 20.0  # β before the first fit: outputs of ridge regression are between 0 and 1
STIFFNESS = 0.01  # of the pull of log β toward its last value
ROUNDS = 15  # of L-BFGS
FEWEST = 20  # samples for a fit
SHARPEST = math.log(10.0)  # bound of |log| of the exponent in `sharpness`


class Placement(NamedTuple):
    """Where the classes of some paths may lie at a level above them, for paths without a known class there."""

    rows: Tensor  # (k,) of the paths
    p: Tensor  # (k, C)


Placements = dict[int, Placement]  # by level


def level_scores(z: Tensor, beta: Tensor | float, columns: Tensor, placement: Placement | None) -> Tensor:
    """(B, paths) β z of the class of each path, from outputs z (B, C) and columns (paths,).

    A path without a known class gets log Σ_c p_c exp(β z_c) by its placement, or else the mean output.
    """
    score = beta * torch.cat([z, z.mean(1, keepdim=True)], 1)[:, columns]  # -1 picks the mean
    if placement is None:
        return score
    top = (beta * z).max(1, keepdim=True).values
    placed = ((beta * z - top).exp() @ placement.p.t()).clamp_min(1e-30).log() + top  # (B, k)
    return score.index_copy(1, placement.rows, placed)


def marginals(posterior: Tensor, leaves: Tensor, widths: dict[int, int], placements: Placements) -> dict[int, Tensor]:
    """(B, C) per level: the sum over the paths through each class, normalised over those that reach the level."""
    found = {}
    for place, (level, width) in enumerate(widths.items()):
        named = leaves[:, place] != UNKNOWN
        p = posterior.new_zeros(len(posterior), width).index_add(1, leaves[named, place], posterior[:, named])
        if level in placements:
            p = p + posterior[:, placements[level].rows] @ placements[level].p
        found[level] = p / p.sum(1, keepdim=True).clamp_min(1e-12)
    return found


def sharpened(p: Tensor, log_exponent: float) -> Tensor:
    """p^b / Σ p^b: (B, C) -> (B, C)."""
    return (math.exp(log_exponent) * p.clamp_min(1e-12).log()).softmax(1)


def sharpness(p: Tensor, columns: Tensor) -> float:
    """log b for which the mean of the largest probability of `sharpened` equals the accuracy; p (n, C), columns (n,)"""
    accuracy = float((p.argmax(1) == columns).double().mean())
    low, high = -SHARPEST, SHARPEST
    for _ in range(20):
        middle = (low + high) / 2
        if float(sharpened(p, middle).max(1).values.double().mean()) < accuracy:
            low = middle
        else:
            high = middle
    return low


def fit(z: dict[int, Tensor], own: Tensor, leaves: Tensor, placements: Placements, start: Tensor) -> Tensor:
    """(levels,) log β with the highest likelihood of the labels, near `start` (levels,).

    Args:
        z: (n, C) per level.
        own: (n,) index of the true path of each sample.
        leaves: (paths, levels) columns.
        placements: of paths without a class at a level.
        start: log β of the last fit.
    """
    log_beta = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([log_beta], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        nll = cross_entropy(path_scores(z, log_beta.exp(), leaves, placements), own)
        value = nll + STIFFNESS * (log_beta - start).square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    return log_beta.detach().clamp(-2, 7)


def path_scores(z: dict[int, Tensor], beta: Tensor, leaves: Tensor, placements: Placements) -> Tensor:
    """(B, paths) Σ_h β_h z_h: z (B, C) per level, coarsest first, beta (levels,), leaves (paths, levels)."""
    score = torch.zeros(())
    for place, (level, outputs) in enumerate(z.items()):
        score = score + level_scores(outputs, beta[place], leaves[:, place], placements.get(level))
    return score


class Reliability:
    """β of each level, and the exponent that calibrates its marginals."""

    def __init__(self) -> None:
        self.log_beta: dict[int, float] = {}
        self.log_exponent: dict[int, float] = {}

    def beta(self, level: int) -> float:
        return math.exp(self.log_beta.get(level, math.log(START)))

    def posterior(self, z: dict[int, Tensor], leaves: Tensor, placements: Placements) -> Tensor:
        """(B, paths) from outputs (B, C) per level."""
        beta = torch.tensor([self.beta(level) for level in z])
        return path_scores(z, beta, leaves, placements).softmax(1)

    def probabilities(self, z: dict[int, Tensor], leaves: Tensor, placements: Placements) -> dict[int, Tensor]:
        """(B, C) per level, calibrated marginals, from outputs (B, C) per level."""
        widths = {level: outputs.shape[1] for level, outputs in z.items()}
        p = marginals(self.posterior(z, leaves, placements), leaves, widths, placements)
        return {level: sharpened(q, self.log_exponent.get(level, 0.0)) for level, q in p.items()}

    def fit(self, z: dict[int, Tensor], y: Tensor, table: TreeTable, placements: Placements) -> None:
        """Fit to samples with outputs z (n, C) per level and labels y (n,), which are leaves of the tree.

        Labels above a leaf can not be used: the levels below have learned what was guessed of them.
        """
        if len(y) < FEWEST:
            return
        leaves, targets = table.leaves, table.paths[y]  # (paths, levels), (n, levels)
        own = table.is_leaf.cumsum(0)[y] - 1  # (n,) index among the leaves
        start = torch.tensor([math.log(self.beta(level)) for level in table.levels])
        log_beta = fit(z, own, leaves, placements, start)
        self.log_beta = dict(zip(table.levels, log_beta.tolist(), strict=True))
        widths = {level: table.width(level) for level in table.levels}
        p = marginals(self.posterior(z, leaves, placements), leaves, widths, placements)
        for place, level in enumerate(table.levels):
            rows = targets[:, place] != UNKNOWN
            if rows.sum() >= FEWEST:
                self.log_exponent[level] = sharpness(p[level][rows], targets[rows, place])

    def state_dict(self) -> dict[str, Any]:
        return {
            name: {str(level): value for level, value in getattr(self, name).items()}
            for name in ("log_beta", "log_exponent")
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, values in state.items():
            setattr(self, name, {int(level): value for level, value in values.items()})
