"""An earlier copy of the network, for methods that hold on to what they once knew."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from dhocl.backbones import Backbone
from dhocl.network import Network, Output


class Snapshot:
    """A frozen copy of f and the heads, taken anew every so many samples: a stream has no task ends to wait for."""

    def __init__(self, net: Network, every: int) -> None:
        self._net = net
        self._every = every
        self._seen = 0
        self._f: Backbone | None = None
        self._rows: dict[int, Tensor] = {}  # weight and bias of the linear heads then

    @property
    def taken(self) -> bool:
        return self._f is not None

    def tick(self, samples: int) -> bool:
        """Count the samples learned; True when a new copy was taken."""
        self._seen += samples
        if self._seen // self._every == (self._seen - samples) // self._every:
            return False
        self.take()
        return True

    def take(self) -> None:
        self._f = self._copy()
        self._rows = {level: rows.detach().clone() for level, rows in self._net.heads.rows().items()}

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Output:
        """What the network would have said then, of the classes known then."""
        assert self._f is not None
        features, feature_map = self._f(pixels)
        logits = {level: features @ rows[:, :-1].t() + rows[:, -1] for level, rows in self._rows.items()}
        return Output(logits, features, feature_map)

    def _copy(self) -> Backbone:
        twin = copy.deepcopy(self._net.f)
        twin.requires_grad_(False)
        twin.is_frozen = True
        return twin

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"seen": self._seen}
        if self._f is not None:
            state |= {"f": self._f.state_dict(), "rows": {str(level): rows for level, rows in self._rows.items()}}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._seen = state["seen"]
        if "f" in state:
            self._f = self._copy()
            self._f.load_state_dict(state["f"])
            self._rows = {int(level): rows.clone() for level, rows in state["rows"].items()}
