"""The last samples of a stream: they wait, so that later labels can complete theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.settings import Settings
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN
from dhocl.nn.heads.completion import complete, evidence, nearby, priors, recency
from dhocl.nn.heads.ridge import LeaveOneOut, Penalty, Statistics, System, factor, outputs

RECENT = 1536  # labels that are remembered, to know the classes nearby
GLOBAL = 1e4  # width of a kernel that knows no recency, to compare with


@dataclass(frozen=True)
class CompletionSettings(Settings):
    completion: Literal["gated", "always", "never"] = "gated"  # complete labels downward; gated: see `margin`
    window: int = 512  # samples that wait for later labels
    recency: float = 25.0  # samples over which the classes nearby change
    margin: float = 30.0  # log-likelihood by which recency must explain the labels better, for completion=gated


class Window:
    """Features and labels of the last samples, what their labels were completed to, and the labels nearby.

    Args:
        dim: number of features D.
        settings: when and how labels are completed.
    """

    training_only = True

    def __init__(self, dim: int, settings: CompletionSettings) -> None:
        self._settings = settings
        self.phi = torch.zeros(0, dim)  # (n, D)
        self.y = torch.zeros(0, dtype=torch.long)  # (n,) nodes
        self.targets: dict[int, Tensor] = {}  # level -> (up to n, C): later samples have none yet
        self.recent = torch.zeros(0, dtype=torch.long)  # (m,) nodes of the last labels
        self.seen = 0
        self.new = 0  # samples since the last `refresh`
        self.advantage = 0.0  # log-likelihood of labels by recency, minus that without
        self.checked = 0  # labels that were hidden and completed again
        self.right = 0  # how many of them came out as they were

    @property
    def times(self) -> Tensor:
        """(n,) places in the stream."""
        return torch.arange(self.seen - len(self.y), self.seen)

    @property
    def recent_times(self) -> Tensor:
        """(m,)"""
        return torch.arange(self.seen - len(self.recent), self.seen)

    def push(self, phi: Tensor, y: Tensor) -> None:
        self.phi, self.y = torch.cat([self.phi, phi]), torch.cat([self.y, y])
        self.recent = torch.cat([self.recent, y])[-RECENT:]
        self.seen += len(y)
        self.new += len(y)

    def refresh(
        self,
        statistics: Statistics,
        beta: Callable[[int], float],
        gamma: Penalty,
        table: TreeTable,
        keep: int | None = None,
    ) -> None:
        """Complete the labels downward. Samples that leave the window are added to the statistics.

        Args:
            statistics: of all samples; soft targets of those in the window are not in them.
            beta: factor of the outputs of a level.
            gamma: ridge penalties (D,) of a level.
            table: the tree.
            keep: samples that stay in the window; None: as many as its setting says.
        """
        s = self._settings
        self.targets = {}
        if s.completion != "never":
            self._compare_recency(table)
            if s.completion == "always" or self.advantage > s.margin:
                self._complete(statistics, beta, gamma, table)
        leaving = max(0, len(self.y) - (s.window if keep is None else keep))
        for level, q in self.targets.items():
            some = q[:leaving].sum(1) > 0
            if some.any():
                statistics.add_soft(self.phi[:leaving][some], q[:leaving][some], level)
        self.phi, self.y = self.phi[leaving:].clone(), self.y[leaving:].clone()
        self.targets = {level: q[leaving:].clone() for level, q in self.targets.items()}
        self.new = 0

    def empty(self) -> None:
        """Drop all samples and the labels nearby."""
        self.phi, self.y, self.recent = self.phi[:0], self.y[:0], self.recent[:0]
        self.targets = {}
        self.new = 0

    def absorb(self, other: Window, nodes: Tensor) -> None:
        """Go on as if the stream of `other`, an empty window, had come before; its nodes have become `nodes` (n,)."""
        self.recent = torch.cat([nodes[other.recent], self.recent])[-RECENT:]
        for name in ("seen", "advantage", "checked", "right"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def _compare_recency(self, table: TreeTable) -> None:
        """Do the new labels follow from those nearby, better than from all recent ones?"""
        fresh = slice(max(0, len(self.recent) - self.new), None)
        y, times = self.recent[fresh], self.recent_times[fresh]
        local = recency(times, self.recent_times, self._settings.recency)
        wide = recency(times, self.recent_times, GLOBAL)
        for place, level in enumerate(table.levels[1:], 1):
            width, columns, recent = table.width(level), table.columns(y, level), table.columns(self.recent, level)
            priors = nearby(local, recent, width), nearby(wide, recent, width)
            for coarser in table.levels[:place]:
                own = table.columns(y, coarser)
                rows = (columns != UNKNOWN) & (own != UNKNOWN)
                known = columns[rows], table.ancestors(level, coarser), own[rows]
                with_recency, without = (evidence(prior[rows], *known) for prior in priors)
                self.advantage += with_recency - without

    def _complete(self, statistics: Statistics, beta: Callable[[int], float], gamma: Penalty, table: TreeTable) -> None:
        logits, hidden = {}, {}
        fresh = slice(max(0, len(self.y) - self.new), None)
        parents = table.parents[self.y[fresh]]
        for level in table.levels[1:]:
            A, M, _ = statistics.system(level, table)
            L = factor(A, gamma(level))
            logits[level] = beta(level) * outputs(self.phi, L, M)
            own = (table.node_levels[self.y[fresh]] == level) & (parents != UNKNOWN)
            columns = table.columns(self.y[fresh][own], level)
            hidden[level] = own, columns, beta(level) * LeaveOneOut(self.phi[fresh][own], columns, L, M).z
        kernel = recency(self.times, self.recent_times, self._settings.recency)
        self.targets = complete(logits, self.y, priors(kernel, self.recent, table, logits), table)
        self._check(hidden, parents, kernel[fresh], table)

    def _check(
        self, hidden: dict[int, tuple[Tensor, Tensor, Tensor]], parents: Tensor, kernel: Tensor, table: TreeTable
    ) -> None:
        """Complete new labels as if only their parents were known, from outputs as if they had not been learned.

        Args:
            hidden: per level: (new,) which of the new samples are labelled there, their columns and their logits.
            parents: (new,) nodes.
            kernel: (new, m) from `recency`.
            table: the tree.
        """
        for level, (own, columns, z) in hidden.items():
            if len(columns):
                prior = priors(kernel[own], self.recent, table, [level])
                again = complete({level: z}, parents[own], prior, table)[level]
                some = again.sum(1) > 0
                self.checked += int(some.sum())
                self.right += int((again.argmax(1) == columns)[some].sum())

    def add_to(self, system: System, level: int) -> None:
        """Add the soft targets of a level."""
        if level in self.targets:
            q = self.targets[level]
            some = q.sum(1) > 0
            system.add(self.phi[: len(q)][some], F.pad(q[some], (0, len(system.N) - q.shape[1])))

    def stats(self) -> dict[str, float]:
        """Share of the samples in the window completed at the finest level; share of hidden labels found again."""
        finest = list(self.targets.values())[-1:]
        stats = {"waiting": float(len(self.y)), "advantage": self.advantage}
        stats["completed"] = float((finest[0].sum(1) > 0.5).double().mean()) if finest and len(finest[0]) else 0.0
        return stats | ({"found_again": self.right / self.checked} if self.checked else {})

    def state_dict(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name != "_settings"}
        return state | {"targets": {str(level): q for level, q in self.targets.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update({name: v.clone() if isinstance(v, Tensor) else v for name, v in state.items()})
        self.targets = {int(level): q.clone() for level, q in state["targets"].items()}
