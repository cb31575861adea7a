"""PredLA: per level, how much to trust the linear and the analytic head, and at which temperature."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from dhocl.losses import entropy
from dhocl.optim import Optimizer


def mix(z_linear: Tensor, z_analytic: Tensor, alpha: Tensor, tau: Tensor) -> Tensor:
    """p̂ = α_l softmax(z_l / τ_l) + α_a softmax(z_a / τ_a): logits (B, C) twice, alpha (2,), tau (2,) -> (B, C)."""
    return alpha[0] * (z_linear / tau[0]).softmax(1) + alpha[1] * (z_analytic / tau[1]).softmax(1)


def entropy_gap(z_linear: Tensor, z_analytic: Tensor, tau: Tensor, delta: float) -> Tensor:
    """E max(0, |H(p_l) - H(p_a)| - δ), what the temperatures are to make small."""
    gap = entropy((z_linear / tau[0]).softmax(1)) - entropy((z_analytic / tau[1]).softmax(1))
    return (gap.abs() - delta).clamp_min(0).mean()


Anchor = Literal["linear", "analytic", "none"]


class PredLA:
    """Weights α (softmax of two logits) and temperatures τ (positive in log space) of each level.

    Matching entropies leaves both temperatures free to run off together, to all-uniform or to one-hot. So one head is
    the reference whose temperature stays (`anchor`), and only the other's moves.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_alpha: float,
        tau: tuple[float, float],
        lr_tau: float,
        delta: float,
        anchor: Anchor,
    ) -> None:
        self._optimizer = optimizer
        self._lr_alpha = lr_alpha
        self._tau_start = torch.tensor(tau).log()
        self._lr_tau = lr_tau
        self._delta = delta
        self._moves = torch.tensor([float(anchor != "linear"), float(anchor != "analytic")])
        self._logits: dict[int, nn.Parameter] = {}
        self._log_tau: dict[int, Tensor] = {}

    def grow(self, levels: list[int]) -> None:
        for level in levels:
            if level not in self._logits:
                self._logits[level] = nn.Parameter(torch.zeros(2))
                self._log_tau[level] = self._tau_start.clone()
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

    def match_entropies(self, linear: dict[int, Tensor], analytic: dict[int, Tensor]) -> None:
        """One gradient step on the temperatures; everything else is held fixed."""
        for level, z in linear.items():
            log_tau = self._log_tau[level].requires_grad_()
            loss = entropy_gap(z.detach(), analytic[level].detach(), log_tau.exp(), self._delta)
            (gradient,) = torch.autograd.grad(loss, log_tau)
            self._log_tau[level] = log_tau.detach() - self._lr_tau * self._moves * gradient

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
                self._log_tau[int(level)] = tensors["log_tau"].clone()
