"""Parameters that gain rows as classes arrive."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dhocl.optim import Optimizer


class GrowingRows:
    """A parameter (classes, *shape) that gains a row a class.

    Storage doubles when it is full, so growing one class at a time costs linear time in total. Spare rows are zero
    and get no gradient.
    """

    def __init__(self, name: str, shape: tuple[int, ...], optimizer: Optimizer, lr: float) -> None:
        self.name = name
        self.width = 0
        self.parameter = nn.Parameter(torch.zeros((8, *shape)))
        self._optimizer = optimizer
        optimizer.add([(name, self.parameter)], lr)

    @property
    def used(self) -> Tensor:
        """(width, *shape), with gradient."""
        return self.parameter[: self.width]

    def extend(self, values: Tensor) -> None:
        """Append a row per new class."""
        width = self.width + len(values)
        if width > len(self.parameter):
            self.parameter = self._optimizer.grow(self.name, max(width, 2 * len(self.parameter)))
        with torch.no_grad():
            self.parameter[self.width : width] = values
        self.width = width

    def state_dict(self) -> dict[str, Any]:
        return {"width": self.width, "rows": self.parameter.detach()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if len(state["rows"]) != len(self.parameter):
            self.parameter = self._optimizer.grow(self.name, len(state["rows"]))
        with torch.no_grad():
            self.parameter.copy_(state["rows"])
        self.width = state["width"]
