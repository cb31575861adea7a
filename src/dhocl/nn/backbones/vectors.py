"""No network: feature vectors of another encoder are passed through."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.nn.backbones.base import Backbone, Encoded


class Vectors(Backbone):
    """Takes feature vectors as images of one pixel with `dim` channels, so that methods on frozen features need no
    other code. Methods that train a network refuse it.
    """

    takes_images = False

    def __init__(self, dim: int) -> None:
        super().__init__(dim, {1: dim}, (0.0,) * 3, (1.0,) * 3)

    def encode(self, x: Tensor) -> Encoded:
        return Encoded(x.flatten(1), x)

    def _on_pixels(self, encode: Callable[[Tensor], tuple[Tensor, ...]], pixels: Tensor) -> tuple[Tensor, ...]:
        if pixels.shape[1:] != (self.dim, 1, 1):
            got = "images" if pixels.shape[1] == 3 else f"shape {tuple(pixels.shape)}"
            raise InputError(f"this model takes vectors of {self.dim} numbers, got {got}: use learn_features")
        self.meter.pixels += len(pixels)
        return encode(pixels.to(self.device).float())


def vectors(dim: str) -> Backbone:
    """
    >>> vectors("512").dim
    512
    """
    if not dim.isdecimal() or int(dim) < 1:
        raise InputError(f"`backbone` features:{dim}: give the length of a vector, such as features:512")
    return Vectors(int(dim)).ready()
