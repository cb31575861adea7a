"""Parameters that gain rows as classes arrive."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dhocl.nn.optim import Optimizer


class GrowingRows:
    """A parameter (classes, *shape) with a row per class."""

    def __init__(self, name: str, shape: tuple[int, ...], optimizer: Optimizer, lr: float) -> None:
        self.name = name
        self.parameter = nn.Parameter(torch.zeros((0, *shape), device=optimizer.device))
        self._optimizer = optimizer
        optimizer.add([(name, self.parameter)], lr, grows=True)

    def __len__(self) -> int:
        return len(self.parameter)

    def extend(self, values: Tensor) -> None:
        """Append a row per new class."""
        width = len(self)
        self.parameter = self._optimizer.grow(self.name, width + len(values))
        with torch.no_grad():
            self.parameter[width:] = values

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.parameter.detach()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.parameter = self._optimizer.grow(self.name, len(state["rows"]))
        with torch.no_grad():
            self.parameter.copy_(state["rows"])
