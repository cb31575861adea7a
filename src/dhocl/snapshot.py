"""An earlier copy of the network, for methods that hold on to what they once knew."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from dhocl.backbones import Backbone
from dhocl.network import Network, Output


class Snapshot:
    """A frozen copy of f and the heads, taken anew whenever the method says so."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._f: Backbone | None = None
        self._rows: dict[int, Tensor] = {}  # weight and bias of the linear heads then

    @property
    def taken(self) -> bool:
        return self._f is not None

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
        if self._f is None:
            return {}
        return {"f": self._f.state_dict(), "rows": {str(level): rows for level, rows in self._rows.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "f" in state:
            self._f = self._copy()
            self._f.load_state_dict(state["f"])
            self._rows = {int(level): rows.clone() for level, rows in state["rows"].items()}
