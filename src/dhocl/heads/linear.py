"""One trainable linear head per level, growing with the taxonomy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dhocl.heads.growing import GrowingRows
from dhocl.optim import Optimizer
from dhocl.rng import Rng
from dhocl.taxonomy import Taxonomy


class LinearHeads:
    """z^h = W^h f(x) + b^h for each observed level h. Weight and bias of a class are one row."""

    def __init__(self, dim: int, optimizer: Optimizer, lr: float, rng: Rng) -> None:
        self._dim = dim
        self._optimizer = optimizer
        self._lr = lr
        self._rng = rng
        self._levels: dict[int, GrowingRows] = {}

    def grow(self, taxonomy: Taxonomy) -> None:
        """New classes start as nn.Linear would start them."""
        for level, width in taxonomy.widths.items():
            rows = self._level(level)
            if (missing := width - len(rows)) > 0:
                bound = self._dim**-0.5
                values = self._rng.uniform(-bound, bound, (missing, self._dim + 1))
                rows.extend(torch.from_numpy(values))

    def __call__(self, features: Tensor) -> dict[int, Tensor]:
        """(B, d) -> logits (B, classes) per level, coarsest first."""
        one = features.new_ones(len(features), 1)  # so that weight and bias need not be cut apart, which costs a copy
        extended = torch.cat([features, one], 1)
        return {level: extended @ rows.t() for level, rows in self.rows().items()}

    def rows(self) -> dict[int, Tensor]:
        """(classes, d + 1) weight and bias per level, coarsest first."""
        return {level: rows.parameter for level, rows in sorted(self._levels.items())}

    def _level(self, level: int) -> GrowingRows:
        if level not in self._levels:
            self._levels[level] = GrowingRows(f"linear.{level}", (self._dim + 1,), self._optimizer, self._lr)
        return self._levels[level]

    def state_dict(self) -> dict[str, Any]:
        return {str(level): rows.state_dict() for level, rows in self._levels.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for level, rows in state.items():
            self._level(int(level)).load_state_dict(rows)
