"""Features of a frozen network."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dhocl.nn.backbones import Backbone, frozen
from dhocl.nn.backbones.parts import PART

AT_ONCE = 16 * PART  # pixels that are scaled at once


class FrozenFeatures:
    """f0(x), with a cache for images that are passed repeatedly, such as test images."""

    def __init__(self, backbone: Backbone) -> None:
        self.f0 = frozen(backbone)
        self.dim = backbone.dim
        self._kept = WeakTensorKeyDictionary()

    def __deepcopy__(self, memo: object) -> FrozenFeatures:
        twin = copy.copy(self)  # f0 never changes, so it is shared
        twin._kept = WeakTensorKeyDictionary()
        return twin

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) uint8 -> (B, dim)"""
        features: Tensor = self.f0(pixels)[0]
        return features

    def kept(self, pixels: Tensor) -> Tensor:
        """The same, cached as long as the tensor exists and is not written to."""
        if pixels in self._kept:
            version, features = self._kept[pixels]
            if version == pixels._version:
                return features  # type: ignore[no-any-return]
        features = self(pixels)
        self._kept[pixels] = (pixels._version, features)
        return features


class StageFeatures(FrozenFeatures):
    """Unit-length features of the last stages, joined to vectors of length 1.

    Args:
        backbone: its copy is frozen.
        weight: of earlier stages, relative to the final features; 0 leaves them out.
        side: side of the images that the network sees, relative to those given.
        mirror: average over each image and its mirror image.
    """

    def __init__(self, backbone: Backbone, weight: float, side: float, mirror: bool) -> None:
        super().__init__(backbone)
        self._stages = len(backbone.stages) if weight else 0
        self._weights = [*[weight] * self._stages, 1.0]
        self._side = side
        self._mirror = mirror
        self.dim += sum(backbone.stages) if weight else 0

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) uint8 -> (B, dim)"""
        size = [max(1, round(self._side * side)) for side in pixels.shape[2:]]
        parts = []
        for part in torch.split(pixels, max(1, AT_ONCE // math.prod(size))):
            views = [part, part.flip(3)] if self._mirror else [part]
            parts.append(torch.stack([self._embed(_scaled(view, size)) for view in views]).mean(0))
        return torch.cat(parts)

    def _embed(self, pixels: Tensor) -> Tensor:
        stages = self.f0.pooled(pixels)[-len(self._weights) :]
        joined = torch.cat([w * F.normalize(part) for w, part in zip(self._weights, stages, strict=True)], 1)
        return joined / math.hypot(*self._weights)


def _scaled(pixels: Tensor, size: list[int]) -> Tensor:
    """(B, 3, H, W) -> (B, 3, *size)"""
    if list(pixels.shape[2:]) == size:
        return pixels
    return F.interpolate(
        pixels.float(), size, mode="bilinear", align_corners=False, antialias=size[0] < pixels.shape[2]
    )
