"""One trainable linear head per level, which grows with the taxonomy."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.nn.heads.growing import GrowingRows
from dhocl.nn.optim import Optimizer


class Affine(NamedTuple):
    weight: Tensor  # (classes, d)
    bias: Tensor  # (classes,)

    def __call__(self, features: Tensor) -> Tensor:
        """(B, d) -> (B, classes)"""
        return F.linear(features, self.weight, self.bias)


class LinearHeads:
    """z^h = W^h f(x) + b^h for each observed level h."""

    def __init__(self, dim: int, optimizer: Optimizer, lr: float, rng: Rng) -> None:
        self._dim = dim
        self._optimizer = optimizer
        self._lr = lr
        self._rng = rng
        self._levels: dict[int, tuple[GrowingRows, GrowingRows]] = {}  # weight and bias

    def grow(self, taxonomy: Taxonomy) -> None:
        """Add rows for new classes, initialised as in nn.Linear."""
        for level, width in taxonomy.widths.items():
            weight, bias = self._level(level)
            if (missing := width - len(weight)) > 0:
                bound = self._dim**-0.5
                values = torch.from_numpy(self._rng.uniform(-bound, bound, (missing, self._dim + 1)))
                weight.extend(values[:, :-1])
                bias.extend(values[:, -1])

    def __call__(self, features: Tensor) -> dict[int, Tensor]:
        """(B, d) -> logits (B, classes) per level, coarsest first."""
        return {level: head(features) for level, head in self.levels.items()}

    @property
    def levels(self) -> dict[int, Affine]:
        """Coarsest first."""
        return {
            level: Affine(weight.parameter, bias.parameter) for level, (weight, bias) in sorted(self._levels.items())
        }

    def _level(self, level: int) -> tuple[GrowingRows, GrowingRows]:
        if level not in self._levels:
            weight = GrowingRows(f"linear.{level}.weight", (self._dim,), self._optimizer, self._lr)
            self._levels[level] = weight, GrowingRows(f"linear.{level}.bias", (), self._optimizer, self._lr)
        return self._levels[level]

    def state_dict(self) -> dict[str, Any]:
        return {
            str(level): {"weight": weight.state_dict(), "bias": bias.state_dict()}
            for level, (weight, bias) in self._levels.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for level, parts in state.items():
            weight, bias = self._level(int(level))
            weight.load_state_dict(parts["weight"])
            bias.load_state_dict(parts["bias"])
