"""One analytic head per level: ridge regression on frozen features, solved recursively."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.devices import Device
from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Taxonomy


def rls_step(R: Tensor, W: Tensor, Phi: Tensor, Y: Tensor, sign: int = 1) -> None:
    """Recursive least squares, in place: updates R and W to ridge regression with these rows added, or removed (-1).

    R = (Σ φφᵀ + γI)⁻¹ (D, D), W (C, D), Phi (b, D), Y (b, C).
    R ← R - RΦᵀ(I + ΦRΦᵀ)⁻¹ΦR,  W ← W + (Y - ΦWᵀ)ᵀ (I + ΦRΦᵀ)⁻¹ΦR  (the paper has a minus here, which diverges).
    To remove rows, all three signs are the other way round.

    In float32 the relative error is about 1e-7 |φ|² / γ at first and about 1e-6 after 10,000 updates, so R is never
    refactorised (docs/performance.md). Raises InputError if γ is so small that R is no longer positive definite.
    """
    eye = torch.eye(len(Phi), dtype=R.dtype, device=R.device)
    U = R @ Phi.t()  # (D, b)
    L, failed = torch.linalg.cholesky_ex(torch.addmm(eye, Phi, U, alpha=sign))  # of S = I + ΦRΦᵀ (b, b)
    if failed:
        raise InputError("analytic head: R is no longer positive definite; raise `settings` gamma")
    inverse = torch.linalg.solve_triangular(L, eye, upper=False)
    V = inverse @ U.t()  # (b, D), RΦᵀS⁻¹ΦR = VᵀV; a triangular solve would give a layout that slows the products below
    W.addmm_((inverse @ (Y - Phi @ W.t())).t(), V, alpha=sign)
    R.addmm_(V.t(), V, alpha=-sign)


class AnalyticHead:
    """R and W of one level. W has spare rows, so adding rows one by one takes linear time in total."""

    def __init__(self, dim: int, gamma: float, exposed_labels: bool = True, device: Device = "cpu") -> None:
        self.width = 0
        self.R = torch.eye(dim, device=device) / gamma
        self._W = torch.zeros(8, dim, device=device)
        self._exposed_labels = exposed_labels
        self.met: set[int] = set()  # columns with a label in an earlier batch

    @property
    def W(self) -> Tensor:
        """(C, D)"""
        return self._W[: self.width]

    def grow(self, width: int) -> None:
        """Rows of new classes are zero, which equals having them from the start."""
        if width > len(self._W):
            grown = self._W.new_zeros(max(width, 2 * len(self._W)), self._W.shape[1])
            grown[: self.width] = self.W
            self._W = grown
        self.width = max(self.width, width)

    def learn(self, phi: Tensor, columns: Tensor) -> None:
        """phi (b, D), columns (b,) with -1 for rows without a label at this level."""
        labelled = columns != UNKNOWN
        if labelled.any():
            Y = F.one_hot(columns[labelled], self.width).to(phi.dtype)
            if not self._exposed_labels:
                Y[:, sorted(self.met)] = 0
            rls_step(self.R, self.W, phi[labelled], Y)
            self.met.update(columns[labelled].tolist())

    def forget(self, phi: Tensor, columns: Tensor) -> None:
        """Undo `learn` for some of its rows, not for ACIL's phase-wise formula, whose targets depend on the order."""
        labelled = columns != UNKNOWN
        if labelled.any():
            rls_step(self.R, self.W, phi[labelled], F.one_hot(columns[labelled], self.width).to(phi.dtype), sign=-1)


class AnalyticHeads:
    """ACIL per level. Each level has its own R, since different samples have a label there.

    Features are scaled to unit length, so that γ is comparable between backbones (docs/deviations.md). An optional
    random ReLU expansion follows, as in ACIL.
    """

    def __init__(
        self,
        dim: int,
        gamma: float,
        expansion: int,
        normalise: bool,
        rng: Rng,
        exposed_labels: bool = True,
        device: Device = "cpu",
    ) -> None:
        self._device = device
        self._gamma = gamma
        self._exposed_labels = exposed_labels
        self._normalise = normalise
        noise = rng.standard_normal((dim, expansion))
        self._expansion = torch.from_numpy(noise).float().to(device) if expansion else None
        self._dim = expansion or dim
        self._levels: dict[int, AnalyticHead] = {}

    def embed(self, features: Tensor) -> Tensor:
        """f0(x) (B, d) -> φ (B, D)."""
        phi = F.normalize(features) if self._normalise else features
        if self._expansion is not None:
            phi = torch.relu(phi @ self._expansion)
            phi = F.normalize(phi) if self._normalise else phi
        return phi

    def grow(self, taxonomy: Taxonomy) -> None:
        for level, width in taxonomy.widths.items():
            self._level(level).grow(width)

    def learn(self, phi: Tensor, targets: Tensor, levels: list[int]) -> None:
        """phi (b, D), targets (b, levels) columns."""
        for place, level in enumerate(levels):
            self._level(level).learn(phi, targets[:, place])

    def forget(self, phi: Tensor, targets: Tensor, levels: list[int]) -> None:
        """Undo `learn` for some of its rows: phi (b, D), targets (b, levels) as they were learned."""
        for place, level in enumerate(levels):
            self._level(level).forget(phi, targets[:, place])

    def __call__(self, phi: Tensor) -> dict[int, Tensor]:
        """(B, D) -> outputs (B, classes) per level, coarsest first; about 1 for the class, 0 for the others."""
        return {level: phi @ head.W.t() for level, head in sorted(self._levels.items())}

    def _level(self, level: int) -> AnalyticHead:
        if level not in self._levels:
            self._levels[level] = AnalyticHead(self._dim, self._gamma, self._exposed_labels, self._device)
        return self._levels[level]

    def state_dict(self) -> dict[str, Any]:
        return {str(level): {"R": head.R, "W": head.W, "met": sorted(head.met)} for level, head in self._levels.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for level, tensors in state.items():
            head = self._level(int(level))
            head.grow(len(tensors["W"]))
            head.W.copy_(tensors["W"])
            head.R.copy_(tensors["R"])
            head.met = set(tensors["met"])
