"""PredLA: mixes the predictions of the linear and the analytic head of each level.

p̂ = α_l softmax(z_l / τ_l) + α_a softmax(z_a / τ_a). `PredLA` is the paper's rule: α by gradient steps on
replayed images, τ by matching the entropies of the heads on them. Both heads were trained on these images, so α and τ
are fitted in-sample. By default HALO uses equal weights and fixed temperatures (methods/halo.py).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dhocl.nn.optim import Optimizer


def mix(z_linear: Tensor, z_analytic: Tensor, alpha: Tensor, tau: Tensor) -> Tensor:
    """p̂ = α_l softmax(z_l / τ_l) + α_a softmax(z_a / τ_a): logits (B, C) twice, alpha (2,), tau (2,) -> (B, C)."""
    return alpha[0] * (z_linear / tau[0]).softmax(1) + alpha[1] * (z_analytic / tau[1]).softmax(1)


def analytic_softmax(z: Tensor, tau: float) -> Tensor:
    """softmax(z √C / τ): (B, C) -> (B, C). Outputs of ridge regression on C one-hot classes shrink about as 1 / √C."""
    return (z / (tau / math.sqrt(z.shape[1]))).softmax(1)


def entropy_gap_slope(z_linear: Tensor, z_analytic: Tensor, tau: Tensor, delta: float) -> Tensor:
    """(2,) derivative of E max(0, |H(p_l) - H(p_a)| - δ) with respect to log τ."""
    h_linear, v_linear = entropy_and_slope(z_linear / tau[0])
    h_analytic, v_analytic = entropy_and_slope(z_analytic / tau[1])
    gap = h_linear - h_analytic
    side = gap.sign() * (gap.abs() > delta)  # (B,)
    return torch.stack([(side * v_linear).mean(), -(side * v_analytic).mean()])


def entropy_and_slope(z: Tensor) -> tuple[Tensor, Tensor]:
    """Entropy (B,) of softmax(z / τ) at τ = 1, and its derivative with respect to log τ, the variance of the logits."""
    log_p = z.log_softmax(1)
    p = log_p.exp()
    h = -(p * log_p).sum(1)
    return h, (p * (log_p + h[:, None]).square()).sum(1)


class PredLA:
    """Weights α (softmax of two logits) and temperatures τ (in log space) per level; initially ½ and 1."""

    def __init__(self, optimizer: Optimizer, lr_alpha: float, lr_tau: float, delta: float) -> None:
        self._optimizer = optimizer
        self._lr_alpha = lr_alpha
        self._lr_tau = lr_tau
        self._delta = delta
        self._logits: dict[int, nn.Parameter] = {}
        self._log_tau: dict[int, Tensor] = {}

    def grow(self, levels: list[int]) -> None:
        for level in levels:
            if level not in self._logits:
                self._logits[level] = nn.Parameter(torch.zeros(2, device=self._optimizer.device))
                self._log_tau[level] = torch.zeros(2, device=self._optimizer.device)
                self._optimizer.add([(f"alpha.{level}", self._logits[level])], self._lr_alpha)

    def alpha(self, level: int) -> Tensor:
        """(2,) weight of the linear and of the analytic head"""
        return self._logits[level].softmax(0)

    def tau(self, level: int) -> Tensor:
        """(2,) temperature of the linear and of the analytic head"""
        return self._log_tau[level].exp()

    def __call__(self, linear: dict[int, Tensor], analytic: dict[int, Tensor]) -> dict[int, Tensor]:
        """Logits per level of both heads -> mixed probabilities per level."""
        return {h: mix(linear[h], analytic[h], self.alpha(h), self.tau(h)) for h in linear}

    @torch.no_grad()
    def match_entropies(self, linear: dict[int, Tensor], analytic: dict[int, Tensor]) -> None:
        """One gradient step on the temperatures only."""
        for level, z in linear.items():
            slope = entropy_gap_slope(z, analytic[level], self.tau(level), self._delta)
            self._log_tau[level] = self._log_tau[level] - self._lr_tau * slope

    def stats(self) -> dict[str, float]:
        numbers: dict[str, float] = {}
        for level in sorted(self._logits):
            alpha, tau = self.alpha(level).tolist(), self.tau(level).tolist()
            numbers |= {f"alpha_linear.{level}": alpha[0], f"alpha_analytic.{level}": alpha[1]}
            numbers |= {f"tau_linear.{level}": tau[0], f"tau_analytic.{level}": tau[1]}
        return numbers

    def state_dict(self) -> dict[str, Any]:
        return {
            str(level): {"alpha": logits.detach(), "log_tau": self._log_tau[level]}
            for level, logits in self._logits.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.grow([int(level) for level in state])
        for level, tensors in state.items():
            with torch.no_grad():
                self._logits[int(level)].copy_(tensors["alpha"])
                self._log_tau[int(level)] = tensors["log_tau"].to(self._optimizer.device, copy=True)
