"""Correction of outputs for frequent classes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.devices import Device
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN, Taxonomy


def balance(N: Tensor, leaves: Tensor, exponent: float) -> Tensor:
    """(C,) factors of the outputs of a level: (share of the leaves / share of the samples) ^ exponent, up to 100 ^ e.

    N (C,) samples of each class; leaves (paths,) columns of this level, -1 where a path has none.
    """
    n = N.clamp_min(0.5)
    k = torch.bincount(leaves[leaves != UNKNOWN], minlength=len(N)).clamp_min(1)
    return ((k / k.sum()) / (n / n.sum())).clamp_max(100) ** exponent


class Balance:
    """The factors of each level, by the samples so far and the tree of the last batch."""

    def __init__(self, exponent: float, device: Device = "cpu") -> None:
        self._exponent = exponent
        self._device = device
        self.N: dict[int, Tensor] = {}  # (C,) samples of each class
        self.factors: dict[int, Tensor] = {}  # (C,)

    def learn(self, targets: Tensor, taxonomy: Taxonomy, sign: int = 1) -> None:
        """Count samples, or with -1 no longer: targets (b, levels) columns, -1 where unknown."""
        leaves = TreeTable.of(taxonomy, targets.device).leaves  # (paths, levels)
        for place, (level, width) in enumerate(taxonomy.widths.items()):
            columns = targets[:, place]
            old = self.N.get(level, torch.zeros(0, device=targets.device))
            came = torch.bincount(columns[columns != UNKNOWN], minlength=width)
            self.N[level] = F.pad(old, (0, width - len(old))) + sign * came
            self.factors[level] = balance(self.N[level], leaves[:, place], self._exponent)

    def __call__(self, outputs: dict[int, Tensor]) -> dict[int, Tensor]:
        """(B, C) per level -> the same, scaled."""
        return {level: z * self.factors[level] for level, z in outputs.items()}

    def state_dict(self) -> dict[str, Any]:
        return {str(level): {"N": N, "factors": self.factors[level]} for level, N in self.N.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.N = {int(level): parts["N"].to(self._device, copy=True) for level, parts in state.items()}
        self.factors = {int(level): parts["factors"].to(self._device, copy=True) for level, parts in state.items()}
