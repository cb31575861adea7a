"""An earlier copy of the network, for methods that hold on to what they once knew."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from dhocl.backbones import Backbone
from dhocl.heads.linear import Affine
from dhocl.network import Network, Output


class Snapshot:
    """A frozen copy of f and the heads, taken anew whenever the method says so."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._f: Backbone | None = None
        self._heads: dict[int, Affine] = {}  # as they were then

    @property
    def taken(self) -> bool:
        return self._f is not None

    def take(self) -> None:
        self._f = self._copy()
        heads = self._net.heads.levels
        self._heads = {level: Affine(*(part.detach().clone() for part in head)) for level, head in heads.items()}

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Output:
        """What the network would have said then, of the classes known then."""
        assert self._f is not None
        features, feature_map = self._f(pixels)
        return Output({level: head(features) for level, head in self._heads.items()}, features, feature_map)

    def _copy(self) -> Backbone:
        twin = copy.deepcopy(self._net.f)
        twin.requires_grad_(False)
        twin.is_frozen = True
        return twin

    def state_dict(self) -> dict[str, Any]:
        if self._f is None:
            return {}
        return {"f": self._f.state_dict(), "heads": {str(level): head._asdict() for level, head in self._heads.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "f" in state:
            self._f = self._copy()
            self._f.load_state_dict(state["f"])
            self._heads = {
                int(level): Affine(head["weight"].clone(), head["bias"].clone())
                for level, head in state["heads"].items()
            }
