"""Seeded random generators that can be stored and resumed."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np


class Rng(np.random.Generator):
    """A numpy generator with an independent stream for each (seed, purpose). A purpose is a word or a number.

    >>> Rng(0, "memory").random() == Rng(0, "memory").random() != Rng(0, "augment").random()
    True
    """

    def __init__(self, seed: int, purpose: str | int) -> None:
        number = zlib.crc32(purpose.encode()) if isinstance(purpose, str) else purpose
        super().__init__(np.random.PCG64([seed, number]))

    def state_dict(self) -> dict[str, Any]:
        return dict(self.bit_generator.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.bit_generator.state = state
