"""Which images of the pool to label next. Features are computed once for each image, a few at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from dhocl.service.features import Features
from dhocl.service.pool import Pool
from dhocl.service.served import Snapshot

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
        self._features = Features(pool.pixels, snapshot, size)
        self._last: tuple[Snapshot, list[int], Ranked] | None = None

    def advance(self) -> bool:
        """Compute features of some images. Whether others are left."""
        ids, held = self._pool.ids(), next(iter(self._features.held.values()), None)
        return self._features.advance(ids[:TRAINED] if held is not None and held.ndim == 3 else ids)

    def rank(self) -> Ranked:
        """Up to MOST suggestions. The first ones are those that a shorter list would have."""
        ids, snapshot = self._pool.ids(), self._snapshot()
        held = {number: self._features.held[number] for number in ids if number in self._features.held}
        self._features.held, considered = held, list(held)
        if self._last and self._last[0] is snapshot and self._last[1] == considered:
            return self._last[2]._replace(pool=len(ids))
        x = torch.stack(list(held.values())) if considered else torch.empty(0, 1)
        found = [{"id": considered[row], **about} for row, about in snapshot.suggest(x, MOST)]
        ranked = Ranked(found, len(considered), len(ids))
        self._last = snapshot, considered, ranked
        return ranked
