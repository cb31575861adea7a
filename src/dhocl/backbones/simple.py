"""Two small ways to a backbone: one for tests, one for a network of your own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from dhocl.backbones.base import IMAGENET_MEAN, IMAGENET_STD, Backbone
from dhocl.backbones.layers import ConvNorm
from dhocl.errors import InputError


class Tiny(Backbone):
    """Three convolutions with random weights, untrained: for tests and examples that must be quick."""

    def __init__(self) -> None:
        super().__init__(64, {16: 64}, IMAGENET_MEAN, IMAGENET_STD)
        stages = [ConvNorm(3, 16, 5, stride=4), ConvNorm(16, 32, 3, stride=2), ConvNorm(32, 64, 3, stride=2)]
        for stage in stages:
            nn.init.kaiming_normal_(stage.conv.weight)  # PyTorch's default would shrink the features to 0.04
        self.stages = nn.ModuleList(stages)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for stage in self.stages:
            x = relu(stage(x), inplace=True)
        return x.mean((2, 3)), x  # (B, 64), (B, 64, H/16, W/16)


def tiny() -> Backbone:
    """Without a seed of its own: `load` draws every backbone's random weights from the same one."""
    return Tiny().ready()


class Wrapped(Backbone):
    """Any network that returns a feature map; the features are its average over positions."""

    def __init__(self, module: nn.Module, dim: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(dim, {16: dim}, mean, std)  # whatever its stride is, there is one
        self.module = module

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        fmap = self.module(x)  # (B, dim, h, w)
        return fmap.mean((2, 3)), fmap


def wrap(
    module: nn.Module,
    dim: int | None = None,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
) -> Backbone:
    """Your own network, which takes normalised images and returns a map (B, C, h, w), as a backbone.

    The module itself is used, not a copy. `dim` is C; without it one blank image is sent through. `mean` and
    `std` are what the network was trained with, per channel on 0..1.

    >>> backbone = wrap(nn.Conv2d(3, 10, kernel_size=8, stride=8))
    >>> backbone.dim
    10
    >>> features, fmap = backbone(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
    >>> features.shape, fmap.shape
    (torch.Size([2, 10]), torch.Size([2, 10, 4, 4]))
    """
    return Wrapped(module, _map_width(module) if dim is None else dim, mean, std).ready()


@torch.no_grad()
def _map_width(module: nn.Module) -> int:
    fmap = module.eval()(torch.zeros(1, 3, 64, 64))
    if not isinstance(fmap, Tensor) or fmap.ndim != 4:
        shape = tuple(fmap.shape) if isinstance(fmap, Tensor) else type(fmap).__name__
        raise InputError(f"a wrapped network must return a feature map (B, C, h, w), got {shape}")
    return fmap.shape[1]
