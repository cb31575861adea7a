"""A small backbone for tests, and a wrapper for networks of your own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from dhocl.core.errors import InputError
from dhocl.nn.backbones.base import IMAGENET_MEAN, IMAGENET_STD, Backbone, Encoded
from dhocl.nn.backbones.layers import ConvNorm


class Tiny(Backbone):
    """Three convolutions with random weights, for fast tests and examples."""

    def __init__(self) -> None:
        super().__init__(64, {16: 64}, IMAGENET_MEAN, IMAGENET_STD, stages=(32,))
        layers = [ConvNorm(3, 16, 5, stride=4), ConvNorm(16, 32, 3, stride=2), ConvNorm(32, 64, 3, stride=2)]
        for layer in layers:
            nn.init.kaiming_normal_(layer.conv.weight)  # with PyTorch's default, features are about 0.04
        self.layers = nn.ModuleList(layers)

    def encode(self, x: Tensor) -> Encoded:
        maps = []
        for layer in self.layers:
            x = relu(layer(x))
            maps.append(x)  # (B, 16, 32 or 64, h, w)
        return Encoded(x.mean((2, 3)), x, (maps[1],))


def tiny() -> Backbone:
    """Its weights are random; `load` seeds them."""
    return Tiny().ready()


class Wrapped(Backbone):
    """A network that returns a feature map; the features are its average over positions."""

    def __init__(self, module: nn.Module, dim: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(dim, {16: dim}, mean, std)  # it has one map, of unknown stride
        self.module = module

    def encode(self, x: Tensor) -> Encoded:
        fmap = self.module(x)  # (B, dim, h, w)
        return Encoded(fmap.mean((2, 3)), fmap)


def wrap(
    module: nn.Module,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    image_size: int = 64,
) -> Backbone:
    """Make a backbone from a network of your own.

    Args:
        module: takes normalised images (B, 3, H, W) and returns a feature map (B, C, h, w), without pooling and
            classifier. It is used itself, not copied.
        mean: of its training images, per channel on 0..1.
        std: standard deviation, likewise.
        image_size: side of a blank image by which C is found; a larger one for a network that needs it.

    Returns:
        A backbone with C features: the map, averaged over positions.

    Example:
        >>> backbone = wrap(nn.Conv2d(3, 10, kernel_size=8, stride=8))
        >>> backbone.dim
        10
        >>> features, fmap = backbone(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
        >>> features.shape, fmap.shape
        (torch.Size([2, 10]), torch.Size([2, 10, 4, 4]))
    """
    return Wrapped(module, _map_width(module, image_size), mean, std).ready()


@torch.no_grad()
def _map_width(module: nn.Module, image_size: int) -> int:
    device = next((parameter.device for parameter in module.parameters()), "cpu")
    try:
        fmap = module.eval()(torch.zeros(1, 3, image_size, image_size, device=device))
    except Exception as error:  # a network may raise anything
        raise InputError(
            f"the network does not take an image of {image_size} x {image_size} pixels ({error}): wrap it with "
            "backbones.wrap and another `image_size`"
        ) from error
    if not isinstance(fmap, Tensor) or fmap.ndim != 4:
        shape = tuple(fmap.shape) if isinstance(fmap, Tensor) else type(fmap).__name__
        raise InputError(
            f"a wrapped network must return a feature map (B, C, h, w), got {shape}: leave out its pooling"
        )
    return fmap.shape[1]
