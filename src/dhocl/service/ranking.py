"""Which images of the pool to label next. Features are computed once for each image, a few at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dhocl.service.pool import Pool
from dhocl.service.served import Snapshot, as_array, as_tensor

AT_ONCE = 16  # images in a step: predictions wait for no more
MOST = 100  # suggestions
TRAINED = 256  # images considered if the network is trained: each is predicted anew when something was learned


class Ranked(NamedTuple):
    suggestions: list[dict[str, Any]]  # best first
    considered: int  # images of the pool that were compared
    pool: int


class Ranking:
    """Ranks the pool by the newest snapshot. Its methods are called in one thread at a time.

    Args:
        pool: the images.
        snapshot: returns the newest one.
        size: side of the images in pixels.
    """

    def __init__(self, pool: Pool, snapshot: Callable[[], Snapshot], size: int) -> None:
        self._pool = pool
        self._snapshot = snapshot
        self._size = size
        self._features: dict[int, Tensor] = {}  # by id: (D,), or pixels (3, size, size) if the network is trained
        self._last: tuple[Snapshot, list[int], Ranked] | None = None

    def advance(self) -> bool:
        """Compute features of some images. Whether others are left."""
        lacking = self._lacking(self._pool.ids())
        found = {number: self._pool.pixels(number) for number in lacking[:AT_ONCE]}
        here = {number: as_array(pixels, self._size) for number, pixels in found.items() if pixels is not None}
        if here:
            x = as_tensor(list(here.values()))
            phi = self._snapshot().frozen_features(x)
            self._features |= dict(zip(here, (x if phi is None else phi).unbind(), strict=True))
        return len(lacking) > AT_ONCE

    def _lacking(self, ids: list[int]) -> list[int]:
        held = next(iter(self._features.values()), None)
        considered = ids[:TRAINED] if held is not None and held.ndim == 3 else ids
        return [number for number in considered if number not in self._features]

    def rank(self) -> Ranked:
        """Up to MOST suggestions. The first ones are those that a shorter list would have."""
        ids, snapshot = self._pool.ids(), self._snapshot()
        self._features = {number: self._features[number] for number in ids if number in self._features}
        considered = list(self._features)
        if self._last and self._last[0] is snapshot and self._last[1] == considered:
            return self._last[2]._replace(pool=len(ids))
        x = torch.stack(list(self._features.values())) if considered else torch.empty(0, 1)
        found = [{"id": considered[row], **about} for row, about in snapshot.suggest(x, MOST)]
        ranked = Ranked(found, len(considered), len(ids))
        self._last = snapshot, considered, ranked
        return ranked
