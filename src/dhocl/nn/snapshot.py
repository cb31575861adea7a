"""A frozen copy of the network, for distillation."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from dhocl.nn.backbones import Backbone
from dhocl.nn.heads.linear import Affine
from dhocl.nn.network import Network, Output, without_map


class Snapshot:
    """A frozen copy of f and the heads; `take` replaces it by a new one."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._f: Backbone | None = None
        self._heads: dict[int, Affine] = {}

    @property
    def taken(self) -> bool:
        return self._f is not None

    def take(self) -> None:
        self._f = self._copy()
        heads = self._net.heads.levels
        self._heads = {level: Affine(*(part.detach().clone() for part in head)) for level, head in heads.items()}

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Output:
        """(B, 3, H, W) -> output of the copied network, for the classes known at that time."""
        assert self._f is not None
        features, no_map = without_map(self._f, pixels)
        return Output({level: head(features) for level, head in self._heads.items()}, features, no_map)

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
                int(level): Affine(*(head[name].to(self._f.device, copy=True) for name in Affine._fields))
                for level, head in state["heads"].items()
            }
