"""Reliability of levels: one distribution over paths from the outputs of all levels, calibrated out of sample.

p(path) ∝ exp Σ_h β_h z_h(class of the path at level h). β_h says how much to trust level h. The β are fitted to samples
whose outputs are computed as if they had not been learned (`ridge.LeaveOneOut`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, cross_entropy

from dhocl.core.decode import through
from dhocl.core.devices import Device
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN

START = 20.0  # β before the first fit: outputs of ridge regression are between 0 and 1
STIFFNESS = 0.01  # of the pull of what is fitted toward its last value
ROUNDS = 15  # of L-BFGS
FEWEST = 20  # samples for a fit
FLAT = 4.0  # by how much the flat part of `calibrated` is flatter
SHAPE = 0.0, -3.0  # log b and logit λ before the first fit
LEAST, MOST = -5.0, 7.0  # bounds of all that is fitted
UNSURE = 1e-3  # probability that nothing is known: none of the predictions is certain


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
        p = through(posterior, leaves[:, place], width)
        if level in placements:
            p = p + posterior[:, placements[level].rows] @ placements[level].p
        found[level] = p / p.sum(1, keepdim=True).clamp_min(1e-12)
    return found


def calibrated(p: Tensor, shape: Tensor) -> Tensor:
    """(B, C) -> (B, C) (1 - λ) p^b / Σ p^b + λ p^(b / FLAT) / Σ p^(b / FLAT); shape (2,) holds log b and logit λ.

    And a little of the uniform distribution. The order of the classes of a row stays. The flat part lowers confidence
    that is too high, b raises what is too low.
    """
    log_p = p.clamp_min(1e-12).log() * shape[0].exp()
    flat = shape[1].sigmoid()
    mixed = (1 - flat) * log_p.softmax(1) + flat * (log_p / FLAT).softmax(1)
    return (1 - UNSURE) * mixed + UNSURE / p.shape[1]


def fit_shape(p: Tensor, columns: Tensor, start: Tensor) -> Tensor:
    """(2,) shape for which the largest probability of `calibrated` best predicts whether it is right, near `start`.

    p (n, C) probabilities out of sample, columns (n,) the true classes.
    """
    right = (p.argmax(1) == columns).to(p.dtype)

    def loss(shape: Tensor) -> Tensor:
        return binary_cross_entropy(calibrated(p, shape).max(1).values.clamp(1e-6, 1 - 1e-6), right)

    return minimised(loss, start)


def minimised(loss: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """The argument with the smallest loss, near `start`, by L-BFGS; `start` if it diverges."""
    x = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([x], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(x) + STIFFNESS * (x - start).square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    found = x.detach().clamp(LEAST, MOST)
    return found if found.isfinite().all() else start


def fit(z: dict[int, Tensor], own: Tensor, leaves: Tensor, placements: Placements, start: Tensor) -> Tensor:
    """(levels,) log β with the highest likelihood of the labels, near `start` (levels,).

    Args:
        z: (n, C) per level.
        own: (n,) index of the true path of each sample.
        leaves: (paths, levels) columns.
        placements: of paths without a class at a level.
        start: log β of the last fit.
    """

    def loss(log_beta: Tensor) -> Tensor:
        return cross_entropy(path_scores(z, log_beta.exp(), leaves, placements), own)

    return minimised(loss, start)


def path_scores(z: dict[int, Tensor], beta: Tensor, leaves: Tensor, placements: Placements) -> Tensor:
    """(B, paths) Σ_h β_h z_h: z (B, C) per level, coarsest first, beta (levels,), leaves (paths, levels)."""
    score = torch.zeros(())
    for place, (level, outputs) in enumerate(z.items()):
        score = score + level_scores(outputs, beta[place], leaves[:, place], placements.get(level))
    return score


def own_path(y: Tensor, table: TreeTable) -> Tensor:
    """(n,) leaves -> (n,) their rows in `table.leaves`."""
    return table.is_leaf.cumsum(0)[y] - 1


class Reliability:
    """β of each level, and the shape that calibrates its marginals."""

    def __init__(self) -> None:
        self.log_beta: dict[int, float] = {}
        self.shapes: dict[int, list[float]] = {}
        self.fitted_at = 0  # samples seen by then

    def shape(self, level: int, device: Device = "cpu") -> Tensor:
        """(2,)"""
        return torch.tensor(self.shapes.get(level, SHAPE), device=device)

    def betas(self, z: dict[int, Tensor]) -> Tensor:
        """(levels,) β of the levels of z, where z is."""
        return torch.tensor([self.beta(level) for level in z], device=next(iter(z.values())).device)

    def beta(self, level: int) -> float:
        return math.exp(self.log_beta.get(level, math.log(START)))

    def posterior(self, z: dict[int, Tensor], leaves: Tensor, placements: Placements) -> Tensor:
        """(B, paths) from outputs (B, C) per level."""
        return path_scores(z, self.betas(z), leaves, placements).softmax(1)

    def probabilities(self, z: dict[int, Tensor], leaves: Tensor, placements: Placements) -> dict[int, Tensor]:
        """(B, C) per level, calibrated marginals, from outputs (B, C) per level."""
        widths = {level: outputs.shape[1] for level, outputs in z.items()}
        p = marginals(self.posterior(z, leaves, placements), leaves, widths, placements)
        return {level: calibrated(q, self.shape(level, q.device)) for level, q in p.items()}

    def fit(self, z: dict[int, Tensor], y: Tensor, table: TreeTable, placements: Placements) -> None:
        """Fit to samples with outputs z (n, C) per level and labels y (n,), which are leaves of the tree.

        Labels above a leaf can not be used: the levels below have learned what was guessed of them.
        """
        if len(y) < FEWEST:
            return
        leaves, targets = table.leaves, table.paths[y]  # (paths, levels), (n, levels)
        start = torch.tensor([math.log(self.beta(level)) for level in table.levels], device=y.device)
        log_beta = fit(z, own_path(y, table), leaves, placements, start)
        self.log_beta = dict(zip(table.levels, log_beta.tolist(), strict=True))
        widths = {level: table.width(level) for level in table.levels}
        p = marginals(self.posterior(z, leaves, placements), leaves, widths, placements)
        for place, level in enumerate(table.levels):
            rows = targets[:, place] != UNKNOWN
            if rows.sum() >= FEWEST:
                last = self.shape(level, y.device)
                self.shapes[level] = fit_shape(p[level][rows], targets[rows, place], last).tolist()

    def gradients(self, z: dict[int, Tensor], y: Tensor, table: TreeTable, placements: Placements) -> dict[int, Tensor]:
        """(n, C) per level: of the negative log-likelihood of each label, by the outputs z. As for `fit`."""
        beta = self.betas(z)
        z = {level: outputs.detach().requires_grad_() for level, outputs in z.items()}
        with torch.enable_grad():
            score = path_scores(z, beta, table.leaves, placements)
            loss = cross_entropy(score, own_path(y, table), reduction="sum")
        return dict(zip(z, torch.autograd.grad(loss, list(z.values())), strict=True))

    def absorb(self, other: Reliability, weight: float) -> None:
        """Go to the mean of both, in which `other` has this weight."""
        for level in self.log_beta.keys() | other.log_beta.keys():
            mine, theirs = (math.log(each.beta(level)) for each in (self, other))
            self.log_beta[level] = (1 - weight) * mine + weight * theirs
        for level in self.shapes.keys() | other.shapes.keys():
            self.shapes[level] = torch.lerp(self.shape(level), other.shape(level), weight).tolist()

    def stats(self) -> dict[str, float]:
        return {f"beta.{level}": self.beta(level) for level in self.log_beta}

    def state_dict(self) -> dict[str, Any]:
        return {"fitted_at": self.fitted_at} | {
            name: {str(level): value for level, value in getattr(self, name).items()} for name in ("log_beta", "shapes")
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.fitted_at = state["fitted_at"]
        self.log_beta = {int(level): value for level, value in state["log_beta"].items()}
        self.shapes = {int(level): value for level, value in state["shapes"].items()}
