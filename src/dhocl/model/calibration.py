"""Calibration: probabilities that match how often they are right.

Probabilities are sharpened or flattened, p -> p^β / Σ p^β, with a β for each level and one for paths: temperature
scaling with β = 1 / T. Each β follows the stream. Every image is predicted before it is learned, and β takes an online
Newton step on -log p(true class), with old gradients fading. Only classes that are known by then count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dhocl.core.decode import Beliefs, believe
from dhocl.core.taxonomy import UNKNOWN, Taxonomy

FADING = 0.998  # per observation: about the last 500 count
PRIOR = 25.0  # squared gradients assumed at the start; no step is larger than 1 / (2 √25)
LEAST = 1e-12  # probability that counts as 0
STEEPEST = 5.0  # bound of a gradient: one wrong prediction must not outweigh hundreds of others
BOUND = math.log(20.0)  # of |log β|


def sharpened(p: Tensor, beta: float) -> Tensor:
    """(B, C) probabilities -> (B, C) with each raised to the power of beta, summing to 1."""
    if beta == 1:
        return p
    return (beta * p.clamp_min(LEAST).log()).softmax(1)


def gradients(q: Tensor, true: Tensor) -> Tensor:
    """(B,) slope of -log Σ_true q in log β: q (B, C) as sharpened by β, `true` (B, C) what is right, in each row some.

    With q = softmax(β s) it is β (E_q s - E_right s), and log q is β s but for a constant: β and s need not be known.
    """
    q = q.clamp_min(LEAST)
    right = q * true / (q * true).sum(1, keepdim=True)
    return ((q - right) * q.log()).sum(1).clamp(-STEEPEST, STEEPEST)


class Sharpness:
    """One β that follows the stream."""

    def __init__(self) -> None:
        self._log_beta = 0.0
        self._weight = PRIOR

    @property
    def beta(self) -> float:
        return math.exp(self._log_beta)

    def update(self, slopes: Sequence[float]) -> None:
        """Gradients of a micro-batch, all taken at the present β."""
        self._weight = max(PRIOR, FADING ** len(slopes) * self._weight) + sum(g * g for g in slopes)
        self._log_beta -= sum(slopes) / self._weight
        self._log_beta = min(BOUND, max(-BOUND, self._log_beta))

    def state_dict(self) -> dict[str, Any]:
        return {"log_beta": self._log_beta, "weight": self._weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._log_beta, self._weight = state["log_beta"], state["weight"]


class Calibration:
    """A β for each level and one for paths."""

    def __init__(self) -> None:
        self._levels: dict[int, Sharpness] = {}
        self._paths = Sharpness()

    def __call__(self, p: dict[int, Tensor], taxonomy: Taxonomy) -> Beliefs:
        """From a learner's probabilities (B, classes) per level."""
        beliefs = believe({level: sharpened(q, self._beta(level)) for level, q in p.items()}, taxonomy)
        return beliefs._replace(posterior=sharpened(beliefs.posterior, self._paths.beta))

    def update(self, beliefs: Beliefs, rows: list[int], nodes: Tensor, taxonomy: Taxonomy) -> None:
        """`beliefs` were returned for images before these were learned; nodes (n,) are the true ones of these rows."""
        targets = taxonomy.complete(nodes)  # (n, levels)
        for place, level in enumerate(taxonomy.levels):
            columns = targets[:, place]
            named = columns != UNKNOWN
            q = beliefs.levels[level][rows][named]
            slopes = gradients(q, one_hot(columns[named], q.shape[1]).bool())
            self._levels.setdefault(level, Sharpness()).update(slopes.tolist())
        places = torch.tensor([taxonomy.levels.index(taxonomy.labels[node].level) for node in nodes.tolist()])
        own = targets.gather(1, places[:, None])  # (n, 1)
        through = beliefs.paths.t()[places] == own  # (n, paths)
        self._paths.update(gradients(beliefs.posterior[rows], through).tolist())

    def _beta(self, level: int) -> float:
        return self._levels[level].beta if level in self._levels else 1.0

    def state_dict(self) -> dict[str, Any]:
        levels = {str(level): sharpness.state_dict() for level, sharpness in self._levels.items()}
        return {"levels": levels, "paths": self._paths.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._levels = {int(level): Sharpness() for level in state["levels"]}
        for level, sharpness in self._levels.items():
            sharpness.load_state_dict(state["levels"][str(level)])
        self._paths.load_state_dict(state["paths"])
