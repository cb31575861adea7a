"""RanPAC (McDonnell et al. 2023): ridge regression on a random ReLU projection, with the ridge chosen online.

The ridge is a power of ten, chosen by the error on a held-out fifth of recent samples, as in the authors' code. What
differs is in docs/baselines.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.devices import Device
from dhocl.core.rng import Rng
from dhocl.core.settings import Settings
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.nn.closed_form import Affine, ClosedForm
from dhocl.nn.heads.ridge import Statistics, factor, solve
from dhocl.nn.learner import Batch, Setup, Stateful
from dhocl.nn.ledger import ROUNDING, without

RIDGES = [10.0**power for power in range(-4, 5)]
HELD_OUT = 5  # one of so many samples


@dataclass(frozen=True)
class RanpacSettings(Settings):
    expansion: int = 2000  # width of the random ReLU layer
    window: int = 500  # recent samples to choose the ridge by
    tau: float = 0.3  # softmax temperature times √classes

    positive = frozenset({"expansion", "window", "tau"})


class Recent:
    """Features and labels of the last samples."""

    training_only = True

    def __init__(self, dim: int, size: int, device: Device = "cpu") -> None:
        self._size = size
        self.features = torch.zeros(0, dim, device=device)  # (n, d), before the projection
        self.y = torch.zeros(0, dtype=torch.long, device=device)  # (n,) nodes

    def push(self, features: Tensor, y: Tensor) -> None:
        self.features = torch.cat([self.features, features])[-self._size :].clone()
        self.y = torch.cat([self.y, y])[-self._size :].clone()

    def remove(self, features: Tensor, y: Tensor) -> None:
        """Delete samples (b, d), (b,), those that are still here. Features differ by rounding between batches."""
        for own, node in zip(features, y, strict=True):
            same = (self.y == node) & ((self.features - own).abs().amax(1) <= ROUNDING)
            kept = without(len(self.y), same.nonzero()[-1:, 0].tolist())
            self.features, self.y = self.features[kept], self.y[kept]

    def state_dict(self) -> dict[str, Any]:
        return {"features": self.features, "y": self.y}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.features, self.y = (state[name].to(self.y.device, copy=True) for name in ("features", "y"))


class RanPAC(ClosedForm):
    statistics: Statistics

    def __init__(self, setup: Setup, settings: RanpacSettings) -> None:
        super().__init__(setup, Statistics(settings.expansion, device=setup.backbone.device))
        self.settings = settings
        self.recent = Recent(setup.backbone.dim, settings.window, self.device)
        noise = Rng(setup.seed, "expansion").standard_normal((setup.backbone.dim, settings.expansion))
        self._projection = torch.from_numpy(noise).float().to(self.device)

    def embed(self, x: Tensor) -> Tensor:
        return self._expand(super().embed(x))

    def _expand(self, features: Tensor) -> Tensor:
        return F.normalize(torch.relu(features @ self._projection))

    @torch.no_grad()
    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.recent.push(super().embed(batch.x), batch.y.to(self.device))
        return super().learn(batch, taxonomy)

    @torch.no_grad()
    def forget(self, batch: Batch, taxonomy: Taxonomy) -> None:
        self.recent.remove(super().embed(batch.x), batch.y.to(self.device))
        super().forget(batch, taxonomy)

    def solve(self, level: int, table: TreeTable) -> Affine:
        A, M, N = self.statistics.system(level, table)
        columns = table.columns(self.recent.y, level)
        known = columns != UNKNOWN
        ridge = best_ridge(self._expand(self.recent.features[known]), F.one_hot(columns[known], len(N)))
        W = solve(stable_factor(A.double(), ridge), M.double()) * (math.sqrt(len(N)) / self.settings.tau)
        return Affine(W.float(), torch.zeros_like(N))

    def components(self) -> dict[str, Stateful]:
        return {"recent": self.recent, **super().components()}


def best_ridge(phi: Tensor, targets: Tensor) -> float:
    """Of RIDGES, by the error on held-out rows; 1 if there are none. phi (n, D), targets (n, C)."""
    held = torch.arange(len(phi), device=phi.device) % HELD_OUT == HELD_OUT - 1
    if not held.any():
        return 1.0
    phi, targets = phi.double(), targets.double()
    values, V = torch.linalg.eigh(phi[~held] @ phi[~held].t())  # (m,), (m, m); dual, as rows are few
    P, Q = phi[held] @ phi[~held].t() @ V, V.t() @ targets[~held]
    errors = [float(((P / (values.clamp_min(0) + ridge)) @ Q - targets[held]).square().mean()) for ridge in RIDGES]
    return RIDGES[errors.index(min(errors))]


def stable_factor(A: Tensor, ridge: float) -> Tensor:
    """Lower Cholesky factor (D, D) of A + ridge I; a ridge below the rounding errors of A is raised."""
    for larger in RIDGES[RIDGES.index(ridge) : -1]:
        L, failed = torch.linalg.cholesky_ex(A + larger * torch.eye(len(A), dtype=A.dtype, device=A.device))
        if not failed:
            return L  # type: ignore[no-any-return]
    return factor(A, RIDGES[-1])
