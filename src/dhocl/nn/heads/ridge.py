"""Ridge regression from sums that add up: over samples, batches, machines and revisions of the tree.

A sample counts for the class of its label alone. What it says about coarser levels is read off the tree when the
regression is solved. So a link that comes late, moves or is removed, and classes that are merged, change the solution
as if the tree had been like this from the start. Soft targets of finer levels are summed level by level. They follow
merges, and stay with a class that moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.devices import Device
from dhocl.core.errors import InputError
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN

Penalty = Callable[[int], Tensor]  # level -> γ (D,)
ROUNDING = 8.0  # units in the last place of the sum of all eigenvalues: a usual error of the smallest
ATTEMPTS = 8  # to factor, with a larger error each
FEW = 1.0  # classes per feature up to which weights are solved


class System(NamedTuple):
    """The normal equations of one level: (A + diag γ) Wᵀ = Mᵀ."""

    A: Tensor  # (D, D) Σ m φφᵀ over samples, m the sum of the sample's target
    M: Tensor  # (C, D) Σ t φᵀ
    N: Tensor  # (C,) Σ t

    def add(self, phi: Tensor, targets: Tensor) -> None:
        """Add samples, in place: phi (b, D), targets (b, C)."""
        mass = targets.sum(1, keepdim=True)  # (b, 1)
        self.A.addmm_((mass * phi).t(), phi)
        self.M.addmm_(targets.t(), phi)
        self.N.add_(targets.sum(0))


def factor(A: Tensor, gamma: float | Tensor, name: str = "gamma") -> Tensor:
    """Lower Cholesky factor (D, D) of A + diag(γ), γ a number or (D,). `name` is that of the setting, for an error.

    Rounding errors of A grow with the number of samples and may exceed γ. Penalties below them are raised.
    """
    gamma = torch.as_tensor(gamma, dtype=A.dtype, device=A.device)
    least = ROUNDING * torch.finfo(A.dtype).eps * A.trace()
    for _ in range(ATTEMPTS):
        penalised = A.clone()
        penalised.diagonal().add_(torch.maximum(gamma, least))
        L, failed = torch.linalg.cholesky_ex(penalised)
        if not failed:
            return L  # type: ignore[no-any-return]
        least = 4 * least
    raise InputError(f"ridge regression: A is not positive definite; raise `settings` {name}")


def solve(L: Tensor, M: Tensor) -> Tensor:
    """Weights (C, D) from the factor L (D, D) and M (C, D)."""
    return torch.cholesky_solve(M.t(), L).t()


def outputs(phi: Tensor, L: Tensor, M: Tensor) -> Tensor:
    """(n, C) for samples phi (n, D), in the order of products that is cheaper."""
    return solve(L, phi) @ M.t() if len(phi) < len(M) else phi @ solve(L, M).t()


def combined(weights: Tensor, L: Tensor, M: Tensor) -> Tensor:
    """(n, D) sums of the weights of all classes, with factors `weights` (n, C), in the cheaper order of products."""
    return weights @ solve(L, M) if len(M) < len(weights) else solve(L, weights @ M)


class Readout(NamedTuple):
    """Outputs of a level. Weights are solved for few classes only: for many, to solve for each sample costs less."""

    rows: Tensor  # (C, D) weights, or M
    L: Tensor | None  # (D, D) the factor, if they are M

    @classmethod
    def of(cls, L: Tensor, M: Tensor, scale: Tensor) -> Readout:
        """From the factor L (D, D), M (C, D) and a factor of each class, scale (C,)."""
        few = len(M) <= FEW * len(L)
        return cls(scale[:, None] * (solve(L, M) if few else M), None if few else L)

    def __call__(self, phi: Tensor) -> Tensor:
        """(n, C) for samples phi (n, D)."""
        return (phi if self.L is None else solve(self.L, phi)) @ self.rows.t()


ROUNDED = 1e-5  # 1 - h can not be told from less in float32


class LeaveOneOut:
    """Outputs for learned samples, each as if it had not been among the samples.

    z₋ᵢ = (zᵢ - hᵢ tᵢ) / (1 - wᵢ hᵢ) with hᵢ = φᵢᵀ (A + diag γ)⁻¹ φᵢ, for a sample that A has with weight wᵢ.

    Args:
        phi: (n, D) features.
        columns: (n,) classes; -1 for samples that were not learned, which get the plain outputs.
        L: (D, D) factor.
        M: (C, D)
        weights: (n,) of the samples in A; None: 1.
    """

    def __init__(self, phi: Tensor, columns: Tensor, L: Tensor, M: Tensor, weights: Tensor | None = None) -> None:
        learned = (columns != UNKNOWN)[:, None]  # (n, 1)
        self._L, self._M = L, M
        self._U = solve(L, phi)  # (n, D)
        self._h = (phi * self._U).sum(1, keepdim=True) * learned  # (n, 1)
        self._learned = learned
        self._targets = F.one_hot(columns.clamp_min(0), len(M)).to(phi.dtype) * learned  # (n, C)
        self._w = phi.new_ones(len(phi), 1) if weights is None else weights[:, None]  # (n, 1)
        self._rest = (1 - self._w * self._h).clamp_min(ROUNDED)  # (n, 1)
        self.z = (self._U @ M.t() - self._h * self._targets) / self._rest  # (n, C)

    def slopes(self, gradient: Tensor, gamma: Tensor) -> Tensor:
        """(n, D) derivatives of the loss of each sample by log γ (D,), from those by its outputs z, gradient (n, C).

        ∂zᵢ / ∂γ_d = -U_id W_d for plain outputs, ∂hᵢ / ∂γ_d = -U_id², with U = φ (A + diag γ)⁻¹ and W the weights.
        """
        plain = self._U * combined(gradient, self._L, self._M)
        by_leverage = (gradient * (self._w * self.z - self._targets)).sum(1, keepdim=True) * self._learned  # (n, 1)
        return -gamma * (plain + self._U.square() * by_leverage) / self._rest


class Rows:
    """A matrix that gains zero rows. It has spare ones, so adding rows one by one takes linear time in total."""

    def __init__(self, *width: int, dtype: torch.dtype = torch.float32, device: Device = "cpu") -> None:
        self._store = torch.zeros(0, *width, dtype=dtype, device=device)
        self._size = 0

    @property
    def filled(self) -> Tensor:
        return self._store[: self._size]

    def grow(self, size: int) -> None:
        if size > len(self._store):
            grown = self._store.new_zeros(max(size, 2 * len(self._store)), *self._store.shape[1:])
            grown[: self._size] = self.filled
            self._store = grown
        self._size = max(self._size, size)

    def load(self, rows: Tensor) -> None:
        self._store, self._size = rows.to(self._store.device, copy=True), len(rows)


class NodeSums:
    """Sums and counts of the samples of each label.

    Args:
        dim: number of features D.
        dtype: of the sums.
        device: where they are. Samples and trees must be there, too.
    """

    training_only = True

    def __init__(self, dim: int, dtype: torch.dtype = torch.float32, device: Device = "cpu") -> None:
        self.dim = dim
        self.dtype = dtype
        self.device = torch.device(device)
        self.sums = Rows(dim, dtype=dtype, device=device)  # (nodes, D) Σφ of the samples with this label
        self.counts = Rows(dtype=dtype, device=device)  # (nodes,)

    def grow(self, nodes: int) -> None:
        self.sums.grow(nodes)
        self.counts.grow(nodes)

    def add(self, phi: Tensor, y: Tensor, table: TreeTable) -> None:
        """Add samples: phi (b, D) with labels y (b,), nodes of the tree."""
        self.grow(len(table))
        self.sums.filled.index_add_(0, y, phi)
        self.counts.filled.index_add_(0, y, torch.ones_like(y, dtype=self.dtype))

    def remove(self, phi: Tensor, y: Tensor, table: TreeTable) -> None:
        """Subtract samples that were added before. What has no sample left is exactly 0."""
        self.sums.filled.index_add_(0, y, phi, alpha=-1)
        self.counts.filled.index_add_(0, y, torch.ones_like(y, dtype=self.dtype), alpha=-1)
        self.sums.filled[self.counts.filled == 0] = 0

    def at(self, level: int, table: TreeTable) -> tuple[Tensor, Tensor]:
        """Sums (C, D) and counts (C,) of the classes of a level, by the tree as it is now."""
        width, counts, sums = table.width(level), self.counts.filled, self.sums.filled
        columns = table.paths[: len(counts), table.levels.index(level)]
        known = columns != UNKNOWN
        M = sums.new_zeros(width, self.dim).index_add_(0, columns[known], sums[known])
        N = counts.new_zeros(width).index_add_(0, columns[known], counts[known])
        return M, N

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums.filled, "counts": self.counts.filled}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sums.load(state["sums"])
        self.counts.load(state["counts"])


class Statistics(NodeSums):
    """The sums of all samples, with Gram matrices and soft targets."""

    def __init__(self, dim: int, dtype: torch.dtype = torch.float32, device: Device = "cpu") -> None:
        super().__init__(dim, dtype, device)
        self.grams: dict[int, Tensor] = {}  # label's level -> (D, D) Σφφᵀ
        self.soft: dict[int, System] = {}  # level -> of soft targets; its rows may be fewer than the classes

    def add(self, phi: Tensor, y: Tensor, table: TreeTable) -> None:
        super().add(phi, y, table)
        levels = table.node_levels[y]
        for level in torch.unique(levels).tolist():
            rows = phi[levels == level]
            self._gram(level).addmm_(rows.t(), rows)

    def _gram(self, level: int) -> Tensor:
        """(D, D)"""
        return self.grams.setdefault(level, self._square())

    def _square(self) -> Tensor:
        return torch.zeros(self.dim, self.dim, dtype=self.dtype, device=self.device)

    def remove(self, phi: Tensor, y: Tensor, table: TreeTable) -> None:
        super().remove(phi, y, table)
        levels, counts = table.node_levels[y], self.counts.filled
        for level in torch.unique(levels).tolist():
            rows = phi[levels == level]
            self.grams[level].addmm_(rows.t(), rows, alpha=-1)
            if not counts[table.node_levels[: len(counts)] == level].any():
                del self.grams[level]

    def add_soft(self, phi: Tensor, targets: Tensor, level: int) -> None:
        """Add soft targets (b, C) of a level for samples phi (b, D) whose label is coarser."""
        system = self._soft(level, targets.shape[1])
        system.add(phi, F.pad(targets, (0, len(system.N) - targets.shape[1])))

    def _soft(self, level: int, width: int) -> System:
        """The sums of soft targets of a level, with at least `width` rows."""
        old = self.soft.get(level, System(self._square(), self._square()[:0], self._square()[0, :0]))
        more = max(0, width - len(old.N))
        self.soft[level] = System(old.A, F.pad(old.M, (0, 0, 0, more)), F.pad(old.N, (0, more))) if more else old
        return self.soft[level]

    def join(self, other: Statistics) -> None:
        """Add the sums of other samples, labelled with nodes of the same tree. They may be on another device."""
        self.grow(len(other.counts.filled))
        self.sums.filled[: len(other.sums.filled)] += other.sums.filled.to(self.device)
        self.counts.filled[: len(other.counts.filled)] += other.counts.filled.to(self.device)
        for level, gram in other.grams.items():
            self._gram(level).add_(gram.to(self.device))
        for level, system in other.soft.items():
            for mine, part in zip(self._soft(level, len(system.N)), system, strict=True):
                mine[: len(part)] += part.to(self.device)

    def moved(self, nodes: Tensor, columns: dict[int, Tensor], after: TreeTable) -> Statistics:
        """A copy for another tree: its nodes have become `nodes` (n,), its classes `columns` (C,) of each level."""
        found = Statistics(self.dim, device=self.device)
        found.grow(len(after))
        rows = nodes[: len(self.counts.filled)]
        found.sums.filled.index_add_(0, rows, self.sums.filled)
        found.counts.filled.index_add_(0, rows, self.counts.filled)
        found.grams = {level: gram.clone() for level, gram in self.grams.items()}
        for level, (A, M, N) in self.soft.items():
            mine = found._soft(level, after.width(level))
            mine.A.add_(A)
            mine.M.index_add_(0, columns[level][: len(N)], M)
            mine.N.index_add_(0, columns[level][: len(N)], N)
        return found

    def share(self, finer: int, level: int, table: TreeTable) -> float:
        """Share of the samples labelled at level `finer` that have a known class at `level`."""
        counts = self.counts.filled
        here = table.node_levels[: len(counts)] == finer
        known = here & (table.paths[: len(counts), table.levels.index(level)] != UNKNOWN)
        return float(counts[known].sum() / counts[here].sum())

    def weights(self, y: Tensor, level: int, table: TreeTable) -> Tensor:
        """(n,) of samples labelled y (n,) in the Gram matrix of a level."""
        levels, found = table.node_levels[y], torch.zeros(len(y), dtype=self.dtype, device=self.device)
        for finer in torch.unique(levels).tolist():
            found[levels == finer] = self.share(finer, level, table)
        return found

    def system(self, level: int, table: TreeTable) -> System:
        """The normal equations of a level, by the tree as it is now.

        Samples of a finer label count if their class has an ancestor here. There is one Gram matrix per level of the
        label, not per class, so it is taken in proportion to the share of samples that have one: exact if all have.
        """
        A = self._square()
        M, N = self.at(level, table)
        for finer, gram in self.grams.items():
            A.add_(gram, alpha=self.share(finer, level, table))
        if level in self.soft:
            soft = self.soft[level]
            accepted = table.ancestors(level, level)[: len(soft.N)]
            A.add_(soft.A)
            M.index_add_(0, accepted, soft.M)
            N.index_add_(0, accepted, soft.N)
        return System(A, M, N)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "grams": {str(level): gram for level, gram in self.grams.items()},
            "soft": {str(level): system._asdict() for level, system in self.soft.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.grams = {int(level): gram.to(self.device, copy=True) for level, gram in state["grams"].items()}
        self.soft = {
            int(level): System(**{name: part.to(self.device, copy=True) for name, part in system.items()})
            for level, system in state["soft"].items()
        }
