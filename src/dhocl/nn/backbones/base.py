"""The interface of backbones: pixels in, features and a feature map out."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d
from torch.nn.modules.batchnorm import _BatchNorm

from dhocl.core.precision import Precision
from dhocl.nn.backbones.layers import ConvNorm
from dhocl.nn.backbones.parts import in_parts

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # per channel, on 0..1
IMAGENET_STD = (0.229, 0.224, 0.225)
POOLED = 768  # values of a stage that is pooled to several cells


class Meter:
    """Counts pixels that pass through a backbone and its copies: once in a forward pass, twice in a backward pass.

    Pixels are counted, because an image of twice the side costs four times as much.
    """

    def __init__(self) -> None:
        self.pixels = 0

    def __deepcopy__(self, memo: object) -> Meter:
        return self  # copies of a network belong to the same learner: their counts add up


class Encoded(NamedTuple):
    features: Tensor  # (B, dim)
    map: Tensor  # (B, map_dim, h, w)
    stages: tuple[Tensor, ...] = ()  # maps (B, channels, h, w) of earlier stages, with the channels that were stated


def cells(channels: int) -> int:
    """Side of the grid to which a stage is pooled: 4, 2 or 1, with at most POOLED values if there are several cells.

    >>> cells(40), cells(112), cells(320)
    (4, 2, 1)
    """
    return next((side for side in (4, 2) if channels * side**2 <= POOLED), 1)


class Backbone(nn.Module, ABC):
    """A network that returns a feature vector, a feature map and pooled earlier stages of each image.

    Pixels are 0..255, as they are stored. The normalisation of the backbone is applied here. Weights and maps are
    channels-last, which is up to twice as fast on a CPU, with the same results.

    Args:
        dim: length of the feature vector.
        maps: stride -> channels of the feature maps that it can return.
        mean: of the training images, per channel on 0..1, as on model cards.
        std: standard deviation, likewise.
        stages: channels of the earlier stages whose maps `encode` returns.
    """

    takes_images = True  # False: feature vectors
    mean: Tensor  # (1, 3, 1, 1) on 0..255
    std: Tensor  # (1, 3, 1, 1)

    def __init__(
        self,
        dim: int,
        maps: dict[int, int],
        mean: Sequence[float],
        std: Sequence[float],
        stages: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.dim = dim
        self.stages = tuple(channels * cells(channels) ** 2 for channels in stages)  # widths after pooling
        self.maps = maps
        self.use_map(16)
        self.is_frozen = False
        self.precision: Precision = "float32"
        self.batch_statistics = False  # in training mode, normalise by the batch and update the running averages
        self.meter = Meter()
        self.register_buffer("mean", 255 * torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    @property
    def device(self) -> torch.device:
        """Where it computes. What is learned of its features is kept there, too."""
        return self.mean.device

    @abstractmethod
    def encode(self, x: Tensor) -> Encoded:
        """Of normalised images (B, 3, H, W)."""

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels (B, 3, H, W), uint8 or float on 0..255 -> features (B, dim), map (B, map_dim, h, w).

        The map has stride 16 or the nearest stride of the network (`use_map`). Pixels may be on any device. The output
        is on that of the network.
        """
        features, feature_map = self._on_pixels(lambda x: self.encode(x)[:2], pixels)
        return features, feature_map

    def features(self, pixels: Tensor) -> Tensor:
        """The same without the map, which is large."""
        return self._on_pixels(lambda x: self.encode(x)[:1], pixels)[0]

    def pooled(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Pixels (B, 3, H, W) -> stages (B, width) pooled to `cells`, and last the features (B, dim)."""

        def encode(x: Tensor) -> tuple[Tensor, ...]:
            encoded = self.encode(x)
            grids = (adaptive_avg_pool2d(stage, cells(stage.shape[1])).flatten(1) for stage in encoded.stages)
            return *grids, encoded.features

        return self._on_pixels(encode, pixels)

    def _on_pixels(self, encode: Callable[[Tensor], tuple[Tensor, ...]], pixels: Tensor) -> tuple[Tensor, ...]:
        if pixels.ndim != 4 or pixels.shape[1] != 3:
            raise ValueError(f"a backbone takes pixels of shape (B, 3, H, W), got {tuple(pixels.shape)}")
        self.meter.pixels += pixels[:, 0].numel() * (3 if torch.is_grad_enabled() and not self.is_frozen else 1)

        def normalised(part: Tensor) -> tuple[Tensor, ...]:
            x = part.to(self.device).to(self.mean.dtype)  # in this order: uint8 is a quarter of the bytes to move
            x = (x - self.mean) / self.std
            if self.precision == "float32":
                return encode(x)
            with torch.autocast(self.device.type, torch.bfloat16):
                return tuple(out.float() for out in encode(x))

        return in_parts(normalised, pixels) if self.device.type == "cpu" else normalised(pixels)

    def train(self, mode: bool = True) -> Self:
        """Like `nn.Module.train`, but batch normalisation uses its stored statistics unless `batch_statistics` is set.

        In a drifting stream, the statistics of a batch differ from those of the test images, and running averages do
        not converge. Scale and shift of the normalisation are still trained. A frozen backbone stays in evaluation
        mode.
        """
        super().train(mode and not self.is_frozen)
        for module in self.modules():
            if isinstance(module, _BatchNorm) and not self.batch_statistics:
                module.eval()
        return self

    def use_map(self, stride: int) -> None:
        """Choose the map that `forward` returns: that of this stride, or of the nearest stride of the network."""
        self.map_stride = min(self.maps, key=lambda known: abs(known - stride))
        self.map_dim = self.maps[self.map_stride]

    @contextmanager
    def resting(self) -> Iterator[None]:
        """A context for prediction between training steps: batch normalisation is folded into the convolutions."""
        awake = [layer for layer in self._layers() if not layer.rests]
        self.rest()
        try:
            yield
        finally:
            for layer in awake:
                layer.wake()

    def rest(self) -> None:
        """Batch-norm folding of all built-in layers. Afterwards training has no effect."""
        for layer in self._layers():
            layer.rest()

    def _layers(self) -> list[ConvNorm]:
        return [module for module in self.modules() if isinstance(module, ConvNorm)]

    def ready(self) -> Self:
        """Convert to channels-last and evaluation mode. Functions that build a backbone return it in this state."""
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self.eval()


def frozen(backbone: Backbone) -> Backbone:
    """An independent copy that is never trained: f0 of the paper."""
    twin = copy.deepcopy(backbone)
    twin.zero_grad(set_to_none=True)  # deepcopy takes gradients along
    twin.requires_grad_(False)
    twin.is_frozen = True
    twin = twin.ready()
    twin.rest()
    return twin
