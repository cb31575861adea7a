"""Random tensors for the tests, the same for the same seed."""

from __future__ import annotations

import torch
from torch import Tensor


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def precise(*shape: int, seed: int = 0) -> Tensor:
    """In float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit(*shape: int, seed: int = 0) -> Tensor:
    """Vectors of length 1."""
    return torch.nn.functional.normalize(normal(*shape, seed=seed), dim=-1)
