"""Layer initialisation from a seed, independent of the global generator."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from dhocl.core.rng import Rng

M = TypeVar("M", bound=nn.Module)


def seeded(module: M, rng: Rng) -> M:
    """Initialise linear and convolutional layers as PyTorch does, from this generator."""
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            bound = layer.weight[0].numel() ** -0.5  # 1 / √fan-in
            with torch.no_grad():
                for p in layer.parameters():
                    p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape))))
    return module
