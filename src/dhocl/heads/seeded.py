"""Layers that start the same for the same seed, whatever the global generator did before."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from dhocl.rng import Rng

M = TypeVar("M", bound=nn.Module)


def seeded(module: M, rng: Rng) -> M:
    """Fill the linear and convolutional layers inside as PyTorch would, from this generator."""
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            bound = layer.weight[0].numel() ** -0.5  # inputs of each output
            with torch.no_grad():
                for p in layer.parameters():
                    p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape))))
    return module
