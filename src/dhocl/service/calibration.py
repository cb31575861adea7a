"""Probabilities that mean what they say, by one number a rank.

A model that learns all the time is too sure at some times and not sure enough at others. So probabilities are sharpened
or flattened, p -> p^β / Σ p^β, with a β for each rank and one for paths. Each is moved by what is predicted of every
observation before it is learned: a step against the gradient of -log p(true class), divided by the sum of squared
gradients so far (an online Newton step), old ones fading. Only classes that are known by then can count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

FADING = 0.998  # per observation: about the last 500 count
PRIOR = 25.0  # squared gradients that are taken for granted; no step is larger than 1 / (2 √25)
LEAST = 1e-12  # probability that counts as 0
STEEPEST = 5.0  # a single surprise must not count for hundreds of others
BOUND = math.log(20.0)  # of |log β|


def sharpened(p: Tensor, beta: float) -> Tensor:
    """(B, C) probabilities -> (B, C) with each raised to the power of beta, summing to 1."""
    return (beta * p.clamp_min(LEAST).log()).softmax(1)


def gradients(q: Tensor, true: Tensor) -> Tensor:
    """(B,) slope of -log Σ_true q in log β: q (B, C) as sharpened by β, `true` (B, C) what is right, in each row some.

    With q = softmax(β s) it is β (E_q s - E_right s), and log q is β s but for a constant: β and s need not be known.
    """
    q = q.clamp_min(LEAST)
    right = q * true / (q * true).sum(1, keepdim=True)
    return ((q - right) * q.log()).sum(1).clamp(-STEEPEST, STEEPEST)


class Sharpness:
    """One β, kept up with the stream."""

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
