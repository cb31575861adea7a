"""Ridge penalties of the parts of a feature vector, learned from how well samples are predicted that were left out.

A part with a small penalty has a large say. The sums of a regression (`ridge`) do not depend on penalties, so a change
counts for all samples, as if it had been made at the start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dhocl.core.devices import Device

FEWEST = 30  # samples for a step
CLEAR = 1.0  # standard errors by which a mean gradient must differ from 0
STEP = 0.5  # of a log penalty, at first
FASTER, SLOWER = 1.2, 0.5  # factors of the step after a step in the same or the opposite direction
SHORTEST, LONGEST = 0.05, 1.0  # steps
LEAST, MOST = math.log(0.01), math.log(200.0)  # log penalties


class Penalties:
    """A log penalty for each level and part, by sign-based steps with an adaptive length (Rprop).

    Args:
        widths: of the parts.
        start: penalties of the parts before the first step.
    """

    training_only = True

    def __init__(self, widths: Sequence[int], start: Sequence[float], device: Device = "cpu") -> None:
        self._device = device
        self._widths = torch.tensor(widths, device=device)
        self._start = torch.tensor(start).log().to(device)
        self.log: dict[int, Tensor] = {}  # level -> (parts,)
        self._steps: dict[int, Tensor] = {}  # (parts,) length of the next step
        self._signs: dict[int, Tensor] = {}  # (parts,) of the last gradient that was clear

    def __call__(self, level: int) -> Tensor:
        """(D,)"""
        return self.log.get(level, self._start).exp().repeat_interleave(self._widths)

    def learn(self, slopes: Tensor, level: int) -> None:
        """A step, from the derivatives (n, D) of the losses of n samples by the log penalties of a level."""
        n = len(slopes)
        if n < FEWEST:
            return
        g = torch.stack([part.sum(1) for part in torch.split(slopes, self._widths.tolist(), 1)], 1)  # (n, parts)
        mean, error = g.mean(0), g.std(0) / math.sqrt(n)
        sign = mean.sign() * (mean.abs() > CLEAR * error)
        step = self._steps.get(level, torch.full_like(mean, STEP))
        last = self._signs.get(level, torch.zeros_like(mean))
        step = torch.where(sign * last > 0, step * FASTER, torch.where(sign * last < 0, step * SLOWER, step))
        self._steps[level] = step.clamp(SHORTEST, LONGEST)
        self._signs[level] = torch.where(sign != 0, sign, last)
        self.log[level] = (self.log.get(level, self._start) - sign * self._steps[level]).clamp(LEAST, MOST)

    def absorb(self, other: Penalties, weight: float) -> None:
        """Go to the mean of both, in which `other` has this weight."""
        for level in self.log.keys() | other.log.keys():
            mine, theirs = self.log.get(level, self._start), other.log.get(level, other._start)
            self.log[level] = torch.lerp(mine, theirs, weight)
            self._steps.setdefault(level, torch.full_like(mine, STEP))
            self._signs.setdefault(level, torch.zeros_like(mine))

    def state_dict(self) -> dict[str, Any]:
        return {
            str(level): {"log": log, "step": self._steps[level], "sign": self._signs[level]}
            for level, log in self.log.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.log = {int(level): parts["log"].to(self._device, copy=True) for level, parts in state.items()}
        self._steps = {int(level): parts["step"].to(self._device, copy=True) for level, parts in state.items()}
        self._signs = {int(level): parts["sign"].to(self._device, copy=True) for level, parts in state.items()}
