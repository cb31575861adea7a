"""Correction of outputs for frequent classes."""

from __future__ import annotations

import torch
from torch import Tensor

from dhocl.core.taxonomy import UNKNOWN


def balance(N: Tensor, leaves: Tensor, exponent: float) -> Tensor:
    """(C,) factors of the outputs of a level: (share of the leaves / share of the samples) ^ exponent, up to 100 ^ e.

    N (C,) samples of each class; leaves (paths,) columns of this level, -1 where a path has none.
    """
    n = N.clamp_min(0.5)
    k = torch.bincount(leaves[leaves != UNKNOWN], minlength=len(N)).clamp_min(1)
    return ((k / k.sum()) / (n / n.sum())).clamp_max(100) ** exponent
