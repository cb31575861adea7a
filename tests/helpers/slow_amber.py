"""AMBER as its definition says, slowly: all samples are kept, and soft targets are computed one by one."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.methods.amber import Amber
from dhocl.nn.heads.completion import DOUBT, FLOOR
from dhocl.nn.heads.ridge import System
from dhocl.nn.heads.window import GLOBAL, RECENT


class Sample(NamedTuple):
    phi: Tensor
    node: int


class Slow:
    """The definition: all samples are kept; soft targets are recomputed when they are due, one by one."""

    def __init__(self, learner: Amber) -> None:
        self.learner = learner  # for its features, settings and reliabilities
        self.samples: list[Sample] = []
        self.soft: dict[int, dict[int, list[float]]] = {}  # sample -> level -> targets
        self.refreshed = 0
        self.advantage = 0.0
        self.left = 0  # samples that have left the window for good
        self.factors: dict[tuple[int, int], float] = {}  # of penalties, by level and part
        self._teachers: dict[tuple[int, int, int | None], Tensor] = {}
        self.found: list[bool] = []  # for each label that was hidden and completed again: was it found?

    def learn(self, x: Tensor, y: Tensor, tree: Taxonomy) -> None:
        self.samples += [Sample(*pair) for pair in zip(self.learner.features(x), y.tolist(), strict=True)]
        s, n = self.learner.settings, len(self.samples)
        if n - self.refreshed >= max(min(s.refresh, self.refreshed // 8), min(s.window, self.refreshed // 32)):
            self._gate(tree)
            if s.completion == "always":
                self._hide_and_seek(tree)
            for i in range(self.left, n):
                self.soft[i] = self._targets(i, self.samples[i].node, tree) if s.completion == "always" else {}
            self.left = max(self.left, n - s.window)
            self.refreshed = n

    def forget(self, i: int) -> None:
        """As if sample i had not come, but for what was computed of others meanwhile."""
        del self.samples[i]
        self.soft = {j - (j > i): targets for j, targets in self.soft.items() if j != i}
        self.left -= i < self.left
        self.refreshed -= i < self.refreshed
        self._teachers.clear()

    def _hide_and_seek(self, tree: Taxonomy) -> None:
        for i in range(self.refreshed, len(self.samples)):
            node = tree.accepted(self.samples[i].node)
            parent, level = tree.parent(node), tree.labels[node].level
            if parent == UNKNOWN:
                continue
            q = self._targets(i, parent, tree, leave_out=True)[level]
            if sum(q) > 0:
                self.found.append(max(range(len(q)), key=q.__getitem__) == tree.column(node))

    def _kernel(self, i: int, j: int, width: float) -> float:
        gap = abs(i - j)
        return math.exp(-gap / width) if 0 < gap <= 6 * width else 0.0

    def _prior(self, i: int, level: int, tree: Taxonomy, width: float) -> dict[int, float]:
        prior = dict.fromkeys(tree.nodes(level).tolist(), 0.0)
        for j, other in enumerate(self.samples):
            if (node := at(other.node, level, tree)) is not None and len(self.samples) - j <= RECENT:
                prior[node] += self._kernel(i, j, width)
        return prior

    def _gate(self, tree: Taxonomy) -> None:
        for level in tree.levels[1:]:
            for coarser in tree.levels[: tree.levels.index(level)]:
                for i in range(self.refreshed, len(self.samples)):
                    own, above = (at(self.samples[i].node, h, tree) for h in (level, coarser))
                    if own is None or above is None:
                        continue
                    same = [c for c in tree.nodes(level).tolist() if at(c, coarser, tree) == above]
                    for sign, width in ((1, self.learner.settings.recency), (-1, GLOBAL)):
                        prior = self._prior(i, level, tree, width)
                        total = sum(prior[c] for c in same) + DOUBT * (1 + len(same))
                        self.advantage += sign * math.log((prior[own] + DOUBT) / total)

    def _targets(self, i: int, node: int, tree: Taxonomy, leave_out: bool = False) -> dict[int, list[float]]:
        """Of sample i, as if it was labelled with `node`; `leave_out`: and as if it had not been learned."""
        s, found = self.learner.settings, {}
        label = tree.labels[node].level
        for level in tree.levels[1:]:
            if label >= level:
                continue
            z = self._teacher(tree, level, i if leave_out else None) @ self.samples[i].phi
            prior = self._prior(i, level, tree, s.recency)
            nodes = tree.nodes(level).tolist()
            below = [c for c in nodes if tree.accepted(c) == c and at(c, label, tree) == tree.accepted(node)]
            q = {c: (prior[c] + FLOOR) * math.exp(self.beta(level) * float(z[tree.column(c)])) for c in below}
            inside = sum(prior[c] for c in below)
            outside = sum(prior[c] for c in nodes if at(c, label, tree) is None)
            trust = inside / (inside + outside + DOUBT)
            found[level] = [q[c] / sum(q.values()) * trust if c in q else 0.0 for c in nodes]
        return found

    def _teacher(self, tree: Taxonomy, level: int, without: int | None) -> Tensor:
        """Weights from given labels and the soft targets of samples that have left the window."""
        key = level, len(self.samples), without
        if key not in self._teachers:
            committed = {j: targets for j, targets in self.soft.items() if j < self.left}
            self._teachers[key] = self.weights(tree, level, committed, without)
        return self._teachers[key]

    def beta(self, level: int) -> float:
        """The β that the learner completed with: none is fitted here."""
        return self.learner.reliability.beta(level)

    def rows(self, tree: Taxonomy, level: int, soft: dict[int, dict[int, list[float]]]) -> tuple[Tensor, Tensor]:
        """Targets (n, C) of all samples, and their features (n, D).

        What was guessed of a sample follows merges. While it waits, no class counts that is known to be elsewhere.
        """
        width = tree.widths[level]
        targets = torch.zeros(len(self.samples), width, dtype=torch.float64)
        for i, sample in enumerate(self.samples):
            if (node := at(sample.node, level, tree)) is not None:
                targets[i, tree.column(node)] = 1
            else:
                for c, q in zip(tree.nodes(level).tolist(), soft.get(i, {}).get(level, []), strict=False):
                    above = at(c, tree.labels[sample.node].level, tree)
                    if i < self.left or above in (None, tree.accepted(sample.node)):
                        targets[i, tree.column(c)] += q
        return targets, torch.stack([sample.phi for sample in self.samples]).double()

    def penalties(self, level: int) -> Tensor:
        """(D,) of the start, which a test may change."""
        s, widths = self.learner.settings, self.learner.features.widths
        parts = [*[s.gamma / s.stages**2] * (len(widths) - 1), s.gamma]
        changed = [part * self.factors.get((level, place), 1.0) for place, part in enumerate(parts)]
        return torch.tensor(changed, dtype=torch.float64).repeat_interleave(torch.tensor(widths))

    def system(
        self, tree: Taxonomy, level: int, soft: dict[int, dict[int, list[float]]], without: int | None = None
    ) -> System:
        """Of all samples, row by row.

        Samples of a finer level count by the share of them that have a class here, whether they have one or not.
        """
        targets, phi = self.rows(tree, level, soft)
        if without is not None:
            targets[without], phi[without] = 0, 0
        A = torch.zeros(phi.shape[1], phi.shape[1], dtype=torch.float64)
        for finer in tree.levels:
            labelled = [i for i, sample in enumerate(self.samples) if tree.labels[sample.node].level == finer]
            known = [i for i in labelled if at(self.samples[i].node, level, tree) is not None]
            for i in labelled:
                mass = len(known) / len(labelled) if finer >= level else float(targets[i].sum())
                A += mass * torch.outer(phi[i], phi[i])
        return System(A, targets.t() @ phi, targets.sum(0))

    def weights(
        self, tree: Taxonomy, level: int, soft: dict[int, dict[int, list[float]]], without: int | None = None
    ) -> Tensor:
        """(C, D) of ridge regression on weighted rows."""
        A, M, _ = self.system(tree, level, soft, without)
        return torch.linalg.solve(A + torch.diag(self.penalties(level)), M.t()).t().float()

    def outputs(self, x: Tensor, tree: Taxonomy) -> dict[int, Tensor]:
        """(B, C) per level, balanced."""
        found = {}
        for level in tree.levels:
            targets, _ = self.rows(tree, level, self.soft)
            n = targets.sum(0).clamp_min(0.5)
            leaves = [c for c in range(len(tree)) if tree.accepted(c) == c and not tree.children(c)]
            k = torch.tensor(
                [max(1, sum(at(leaf, level, tree) == c for leaf in leaves)) for c in tree.nodes(level).tolist()]
            )
            scale = ((k / k.sum()) / (n / n.sum())).clamp_max(100) ** self.learner.settings.balance
            found[level] = self.learner.features(x) @ self.weights(tree, level, self.soft).t() * scale.float()
        return found


def at(node: int, level: int, tree: Taxonomy) -> int | None:
    """The class of a node at a level, if it is known."""
    return next((a for a in tree.lineage(node) if tree.labels[a].level == level), None)
