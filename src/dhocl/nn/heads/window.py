"""The last samples of a stream: they wait, so that later labels can complete theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from dhocl.core.devices import Device
from dhocl.core.settings import Settings
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN
from dhocl.nn.heads.completion import complete, evidence, nearby, priors, recency
from dhocl.nn.heads.ridge import LeaveOneOut, Penalty, Statistics, System, factor, outputs
from dhocl.nn.ledger import TargetLedger

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
        device: where samples are. Those that have left are in main memory.
    """

    training_only = True

    def __init__(self, dim: int, settings: CompletionSettings, device: Device = "cpu") -> None:
        self._settings = settings
        self._device = device
        self.phi = torch.zeros(0, dim, device=device)  # (n, D)
        self.y = torch.zeros(0, dtype=torch.long, device=device)  # (n,) nodes
        self.targets: dict[int, Tensor] = {}  # level -> (up to n, C): later samples have none yet
        self.recent = self.y  # (m,) nodes of the last labels
        self.keys = self.y  # (max(n, m),) of the last samples, by content
        self.left = TargetLedger()  # samples that have left, with the soft targets that they were added with
        self.seen = 0
        self.new = 0  # samples since the last `refresh`
        self.advantage = 0.0  # log-likelihood of labels by recency, minus that without
        self.checked = 0  # labels that were hidden and completed again
        self.right = 0  # how many of them came out as they were

    @property
    def times(self) -> Tensor:
        """(n,) places in the stream."""
        return torch.arange(self.seen - len(self.y), self.seen, device=self._device)

    @property
    def recent_times(self) -> Tensor:
        """(m,)"""
        return torch.arange(self.seen - len(self.recent), self.seen, device=self._device)

    def push(self, phi: Tensor, y: Tensor, keys: Tensor) -> None:
        self.phi, self.y = torch.cat([self.phi, phi]), torch.cat([self.y, y])
        self.recent = torch.cat([self.recent, y])[-RECENT:]
        self.keys = torch.cat([self.keys, keys.to(self._device)])[-max(len(self.y), len(self.recent)) :]
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
        keys = self.keys[len(self.keys) - len(self.y) :][:leaving]
        self.left.add(keys, self.y[:leaving], {level: q[:leaving] for level, q in self.targets.items()})
        for level, q in self.targets.items():
            some = q[:leaving].sum(1) > 0
            if some.any():
                statistics.add_soft(self.phi[:leaving][some], q[:leaving][some], level)
        self.phi, self.y = self.phi[leaving:].clone(), self.y[leaving:].clone()
        self.targets = {level: q[leaving:].clone() for level, q in self.targets.items()}
        self.keys = self.keys[len(self.keys) - max(len(self.y), len(self.recent)) :].clone()
        self.new = 0

    def empty(self) -> None:
        """Drop all that is known of single samples."""
        self.phi, self.y, self.recent, self.keys = self.phi[:0], self.y[:0], self.recent[:0], self.keys[:0]
        self.targets, self.left = {}, TargetLedger()
        self.new = 0

    def absorb(self, other: Window, nodes: Tensor, columns: dict[int, Tensor]) -> None:
        """Go on as if the stream of `other`, whose samples have all left its window, had come before.

        Its nodes have become `nodes` (n,), its classes `columns` (C,) of each level.
        """
        self.recent = torch.cat([nodes[other.recent], self.recent])[-RECENT:]
        keys = torch.cat([other.keys, self.keys])
        self.keys = keys[len(keys) - max(len(self.y), len(self.recent)) :]
        on_cpu = {level: become.cpu() for level, become in columns.items()}
        self.left.absorb(other.left, nodes.cpu(), on_cpu)
        for name in ("seen", "advantage", "checked", "right"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def remembered(self, key: int, node: int) -> int:
        """How many samples with this content and label can be removed."""
        own = slice(len(self.keys) - len(self.y), None)
        return int(((self.keys[own] == key) & (self.y == node)).sum()) + self.left.count(key, node)

    def remove(self, key: int, node: int, phi: Tensor, statistics: Statistics) -> None:
        """Remove the newest sample with this content and label, as if it had never come.

        If it has left the window, its soft targets are subtracted from the statistics: phi (D,) are its features.
        """
        age = self._age(key, node)
        if age > len(self.y):
            (place,) = self.left.find(torch.tensor([key]), torch.tensor([node]))
            assert place is not None, "it must be remembered"
            for level, (columns, values) in self.left.targets(place).items():
                q = phi.new_zeros(1, len(statistics.soft[level].N))
                q[0, columns] = -values.to(self._device)
                statistics.add_soft(phi[None], q, level)
            self.left.remove([place])
        row = len(self.y) - age
        self.targets = {level: _without(q, row) for level, q in self.targets.items()}
        for name in ("phi", "y", "recent", "keys"):
            rows = getattr(self, name)
            setattr(self, name, _without(rows, len(rows) - age))
        self.seen -= 1
        self.new -= age <= self.new

    def _age(self, key: int, node: int) -> int:
        """How many samples have come since, with itself; more than all that are here if it is not among them."""
        labels = max(self.y, self.recent, key=len)
        same = ((self.keys == key) & (labels == node)).nonzero()[:, 0]
        return len(labels) - int(same[-1]) if len(same) else len(labels) + 1

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

    def add_to(self, system: System, level: int, table: TreeTable) -> None:
        """Add the soft targets of a level."""
        if level in self.targets:
            q = self._followed(level, table)
            some = q.sum(1) > 0
            system.add(self.phi[: len(q)][some], q[some])

    def _followed(self, level: int, table: TreeTable) -> Tensor:
        """(n, C) soft targets of a level, by the tree as it has become since they were computed.

        A synonym counts for what it was merged into. A class that has moved from below a label no longer counts for it.
        """
        old = self.targets[level]
        accepted = table.ancestors(level, level)[: old.shape[1]]
        q = old.new_zeros(len(old), table.width(level)).index_add_(1, accepted, old)
        y = self.y[: len(q)]
        for coarser in table.levels[: table.levels.index(level)]:
            rows, above = table.node_levels[y] == coarser, table.ancestors(level, coarser)
            elsewhere = (above != UNKNOWN) & (above != table.columns(y[rows], coarser)[:, None])
            q[rows] = q[rows].masked_fill(elsewhere, 0)
        return q

    def stats(self) -> dict[str, float]:
        """Share of the samples in the window completed at the finest level; share of hidden labels found again."""
        finest = list(self.targets.values())[-1:]
        stats = {"waiting": float(len(self.y)), "advantage": self.advantage}
        stats["completed"] = float((finest[0].sum(1) > 0.5).double().mean()) if finest and len(finest[0]) else 0.0
        return stats | ({"found_again": self.right / self.checked} if self.checked else {})

    def state_dict(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in ("_settings", "_device")}
        targets = {str(level): q for level, q in self.targets.items()}
        return state | {"targets": targets, "left": self.left.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        own = {name: v for name, v in state.items() if name not in ("targets", "left", "keys")}
        vars(self).update({name: self._here(v) if isinstance(v, Tensor) else v for name, v in own.items()})
        self.targets = {int(level): self._here(q) for level, q in state["targets"].items()}
        self.keys = self.y.new_zeros(max(len(self.y), len(self.recent)))
        if len(state.get("keys", ())) == len(self.keys):  # earlier versions wrote none, so these can not be forgotten
            self.keys.copy_(state["keys"])
            self.left.load_state_dict(state["left"])

    def _here(self, values: Tensor) -> Tensor:
        return values.to(self._device, copy=True)


def _without(rows: Tensor, place: int) -> Tensor:
    """(n, ...) -> (n - 1, ...); unchanged if there is no such place."""
    return torch.cat([rows[:place], rows[place + 1 :]]) if 0 <= place < len(rows) else rows
