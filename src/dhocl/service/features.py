"""Features of stored images, computed once for each image, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from dhocl.service.served import Snapshot, as_array, as_tensor

AT_ONCE = 16  # images in a step: predictions wait for no more


class Features:
    """Frozen features are the same in all snapshots. Its methods are called in one thread at a time.

    Args:
        pixels: returns those of a stored image, None if it is gone.
        snapshot: returns the newest one.
        size: side of the images in pixels.
    """

    def __init__(self, pixels: Callable[[int], bytes | None], snapshot: Callable[[], Snapshot], size: int) -> None:
        self._pixels = pixels
        self._snapshot = snapshot
        self._size = size
        self.held: dict[int, Tensor] = {}  # by number: (D,), or the image (3, size, size) if the network is trained

    def advance(self, numbers: Sequence[int]) -> bool:
        """Look at some of these images. Whether others are left."""
        lacking = [number for number in numbers if number not in self.held]
        found = {number: self._pixels(number) for number in lacking[:AT_ONCE]}
        here = {number: as_array(pixels, self._size) for number, pixels in found.items() if pixels is not None}
        if here:
            x = as_tensor(list(here.values()))
            phi = self._snapshot().frozen_features(x)
            self.held |= dict(zip(here, (x if phi is None else phi).unbind(), strict=True))
        return len(lacking) > AT_ONCE

    def of(self, pixels: bytes) -> Tensor | None:
        """(1, D) features of an image that is not stored. None if the network is trained."""
        return self._snapshot().frozen_features(as_tensor([as_array(pixels, self._size)]))
