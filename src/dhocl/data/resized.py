"""Images of an array that are resized on demand, where all of them would not fit in memory at that size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from dhocl.data.images import channels_first, resize, with_progress


@dataclass(frozen=True, eq=False)
class Resized:
    """Images that can be indexed like a tensor (N, 3, size, size).

    >>> images = Resized(np.zeros((5, 8, 8, 3), dtype=np.uint8), 16).pick(np.array([0, 3]))
    >>> len(images), images.nbytes, tuple(images.decoded().shape)
    (2, 1536, (2, 16, 16, 3))
    """

    array: np.ndarray  # (M, H, W, 3) uint8, perhaps a file
    size: int
    chosen: np.ndarray | None = None  # (N,) rows of the array; None for all

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """(n,) indices -> (n, 3, size, size) uint8"""
        return channels_first(self(rows.numpy()))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """(n,) indices -> (n, size, size, 3) uint8"""
        return self.pick(rows).decoded()

    @cached_property
    def _rows(self) -> np.ndarray:
        return np.arange(len(self.array)) if self.chosen is None else self.chosen

    @property
    def nbytes(self) -> int:
        """Bytes of all images when resized."""
        return 3 * self.size**2 * len(self)

    def pick(self, rows: np.ndarray) -> Resized:
        return replace(self, chosen=self._rows[rows])

    def decoded(self) -> np.ndarray:
        """All images, (N, size, size, 3) uint8."""
        return resize(self.array[self._rows], self.size)

    def identity(self) -> Iterator[bytes]:
        """The pixels (N, 3, size, size), as those of a tensor in memory."""
        for row in with_progress(self._rows, len(self), "checking images"):
            yield channels_first(resize(self.array[[row]], self.size)).numpy().tobytes()
