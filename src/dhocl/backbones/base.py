"""What every backbone promises: pixels in, features and a feature map out."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dhocl.backbones.layers import ConvNorm
from dhocl.backbones.parts import Encoded, in_parts

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # per channel, on 0..1
IMAGENET_STD = (0.229, 0.224, 0.225)


class Meter:
    """Work of a backbone and its copies, in pixels: those of a forward once, twice more where a backward follows.

    Pixels and not images, since an image at twice the side costs four times as much.
    """

    def __init__(self) -> None:
        self.pixels = 0

    def __deepcopy__(self, memo: object) -> Meter:
        return self  # copies of a network are parts of the same learner: their work adds up


class Backbone(nn.Module, ABC):
    """A network that turns pixels into one vector and one map per image.

    Pixels come as they are stored, 0..255: each backbone was trained with its own normalisation, so it is
    applied here and nobody else needs to know it. Weights and maps are kept channels-last, which is up to
    twice as fast on a CPU and gives the same numbers.
    """

    mean: Tensor  # (1, 3, 1, 1) on 0..255
    std: Tensor  # (1, 3, 1, 1)

    def __init__(
        self, dim: int, map_dim: int, mean: Sequence[float], std: Sequence[float], last_dim: int | None = None
    ) -> None:
        """`mean` and `std` per channel on 0..1, the way model cards print them.

        `last_dim` is the width of the last stage's map, where that is not the map already.
        """
        super().__init__()
        self.dim = dim
        self.map_dim = map_dim
        self.last_map = False
        self._last_dim = map_dim if last_dim is None else last_dim
        self.is_frozen = False
        self.meter = Meter()
        self.register_buffer("mean", 255 * torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    @abstractmethod
    def encode(self, x: Tensor) -> Encoded:
        """Normalised images (B, 3, H, W) -> features (B, dim), map (B, map_dim, h, w)."""

    def forward(self, pixels: Tensor) -> Encoded:
        """Pixels (B, 3, H, W), uint8 or float on 0..255 -> features (B, dim), map (B, map_dim, h, w).

        The map is taken at stride 16 where the network has such a stage (see `use_last_map`). The network may be on a
        GPU: what goes in and what comes out is on the CPU, where heads, memory and tree are, so nobody else needs to
        know.
        """
        if pixels.ndim != 4 or pixels.shape[1] != 3:
            raise ValueError(f"a backbone takes pixels of shape (B, 3, H, W), got {tuple(pixels.shape)}")
        self.meter.pixels += pixels[:, 0].numel() * (3 if torch.is_grad_enabled() and not self.is_frozen else 1)
        on_cpu = self.mean.device.type == "cpu"
        return in_parts(self._encode_pixels, pixels) if on_cpu else self._encode_pixels(pixels)

    def use_last_map(self) -> None:
        """From now on the map is that of the last stage, at stride 32 in a convolutional network."""
        self.last_map = True
        self.map_dim = self._last_dim

    def _encode_pixels(self, pixels: Tensor) -> Encoded:
        features, feature_map = self.encode(self._normalised(pixels.to(self.mean.device, self.mean.dtype)))
        return features.cpu(), feature_map.cpu()

    def _normalised(self, x: Tensor) -> Tensor:
        """(B, 3, H, W), in the order in which it lies in memory."""
        if x.is_contiguous():
            return (x - self.mean).div_(self.std)
        lines = x.permute(0, 2, 3, 1).flatten(2)  # (B, H, 3W), since three numbers at a time take three times as long
        mean, std = (each.flatten().repeat(x.shape[3]) for each in (self.mean, self.std))
        normalised = (lines - mean).div_(std)
        return normalised.view(len(x), *x.shape[2:], 3).permute(0, 3, 1, 2)

    def train(self, mode: bool = True) -> Self:
        """Like `nn.Module.train`, but batch normalisation always uses its stored statistics.

        A stream is seen once and drifts: the statistics of one batch are not those of the test images, and
        running averages never settle, so a network trained on batch statistics breaks when it predicts. The
        scale and shift of the normalisation are still learned. A frozen backbone stays in evaluation mode.
        """
        super().train(mode and not self.is_frozen)
        for module in self.modules():
            if isinstance(module, _BatchNorm):
                module.eval()
        return self

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Inside it does not learn: what follows from its weights is computed once and not for every batch."""
        self.rest()
        try:
            yield
        finally:
            for layer in self._layers():
                layer.wake()

    def rest(self) -> None:
        """From now on it does not learn."""
        for layer in self._layers():
            layer.rest()

    def _layers(self) -> list[ConvNorm]:
        return [module for module in self.modules() if isinstance(module, ConvNorm)]

    def ready(self) -> Self:
        """Channels-last and in evaluation mode; every backbone is handed out like this."""
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self.eval()


def frozen(backbone: Backbone) -> Backbone:
    """An independent copy that never learns: the f0 of the paper, a fixed point while the original moves."""
    twin = copy.deepcopy(backbone)
    twin.zero_grad(set_to_none=True)  # deepcopy takes gradients along
    twin.requires_grad_(False)
    twin.is_frozen = True
    twin = twin.ready()
    twin.rest()
    return twin
