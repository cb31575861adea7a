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
        return self.f0.features(pixels)

    def kept(self, pixels: Tensor) -> Tensor:
        """The same, cached as long as the tensor exists and is not written to. Features (B, dim) are returned."""
        if pixels.ndim == 2:
            return pixels.to(self.f0.device)
        if pixels in self._kept:
            version, features = self._kept[pixels]
            if version == pixels._version:
                return features  # type: ignore[no-any-return]
        features = self(pixels)
        self._kept[pixels] = (pixels._version, features)
        return features


class StageFeatures(FrozenFeatures):
    """Features of several stages side by side, each of unit length; the final features come last.

    Args:
        backbone: its copy is frozen.
        stages: whether to include earlier stages.
        side: side of the images that the network sees, relative to those given.
        mirror: average over each image and its mirror image.
    """

    def __init__(self, backbone: Backbone, stages: bool = True, side: float = 1.0, mirror: bool = False) -> None:
        super().__init__(backbone)
        self.widths = [*(backbone.stages if stages else ()), backbone.dim]
        self.dim = sum(self.widths)
        self._side = side
        self._mirror = mirror

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) uint8 -> (B, dim)"""
        size = [max(1, round(self._side * side)) for side in pixels.shape[2:]]
        parts = []
        for part in torch.split(pixels, max(1, AT_ONCE // math.prod(size))):
            part = part.to(self.f0.device)
            views = [part, part.flip(3)] if self._mirror else [part]
            parts.append(torch.stack([self._embed(_scaled(view, size)) for view in views]).mean(0))
        return torch.cat(parts)

    def _embed(self, pixels: Tensor) -> Tensor:
        return torch.cat([F.normalize(part) for part in self.f0.pooled(pixels)[-len(self.widths) :]], 1)


class WeightedStages(StageFeatures):
    """Earlier stages with a weight, the final features with 1, joined to vectors of length 1."""

    def __init__(self, backbone: Backbone, weight: float) -> None:
        super().__init__(backbone)
        weights = torch.tensor([*[weight] * (len(self.widths) - 1), 1.0])
        scale = (weights / weights.norm()).repeat_interleave(torch.tensor(self.widths))
        self._scale = scale.to(backbone.device)

    def __call__(self, pixels: Tensor) -> Tensor:
        weighted: Tensor = self._scale * super().__call__(pixels)
        return weighted


def _scaled(pixels: Tensor, size: list[int]) -> Tensor:
    """(B, 3, H, W) -> (B, 3, *size)"""
    if list(pixels.shape[2:]) == size:
        return pixels
    return F.interpolate(
        pixels.float(), size, mode="bilinear", align_corners=False, antialias=size[0] < pixels.shape[2]
    )
