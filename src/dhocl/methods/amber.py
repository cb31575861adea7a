"""AMBER: analytic heads on multi-stage frozen features, balanced, with every label completed, by ridge regression.

No network is trained. Features of several stages of a frozen network enter one ridge regression per level, whose sums
add up (`heads/ridge`). A label is completed upward by the tree, and downward by the classes nearby in the stream
(`heads/completion`): a sample waits in a window, so that later labels can explain it. Outputs of all levels are
combined to one distribution over paths (`heads/reliability`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.settings import Settings
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.nn.features import StageFeatures
from dhocl.nn.heads.anchoring import doubts, placement
from dhocl.nn.heads.balance import balance
from dhocl.nn.heads.completion import complete, evidence, nearby, recency
from dhocl.nn.heads.reliability import Placement, Placements, Reliability
from dhocl.nn.heads.ridge import Statistics, System, factor, leave_one_out, solve
from dhocl.nn.learner import Batch, Learner, Setup, Stateful
from dhocl.nn.memory import Reservoir

RECENT = 1536  # labels that are remembered, to know the classes nearby
GLOBAL = 1e4  # width of a kernel that knows no recency, to compare with
GROWTH = 8  # reliabilities are fitted again when the stream has grown by an eighth


@dataclass(frozen=True)
class AmberSettings(Settings):
    gamma: float = 0.5  # ridge
    stages: float = 0.5  # weight of the features of earlier stages; 0: the final features alone
    side: float = 1.0  # side of the images that the network sees, relative to those of the stream
    mirror: bool = True  # average the features of an image and its mirror image, where mirroring keeps the class
    balance: float = 0.5  # exponent of the correction for frequent classes; 0: none
    completion: Literal["gated", "always", "never"] = "gated"  # complete labels downward; gated: see `margin`
    window: int = 512  # samples that wait for later labels
    recency: float = 25.0  # samples over which the classes nearby change
    margin: float = 30.0  # log-likelihood by which recency must explain the labels better, for completion=gated
    refresh: int = 128  # samples between completions
    calibration: int = 512  # features of leaves kept to fit reliabilities
    doubt: bool = True  # leave out links that the images contradict

    positive = frozenset({"gamma", "side", "recency", "refresh"})


class Window:
    """The last samples: features, labels and what their labels were completed to."""

    training_only = True

    def __init__(self, dim: int) -> None:
        self.phi = torch.zeros(0, dim)  # (n, D)
        self.y = torch.zeros(0, dtype=torch.long)  # (n,) nodes
        self.targets: dict[int, Tensor] = {}  # level -> (up to n, C): later samples have none yet

    def push(self, phi: Tensor, y: Tensor) -> None:
        self.phi, self.y = torch.cat([self.phi, phi]), torch.cat([self.y, y])

    def drop(self, n: int) -> None:
        """Remove the n oldest."""
        self.phi, self.y = self.phi[n:].clone(), self.y[n:].clone()
        self.targets = {level: q[n:].clone() for level, q in self.targets.items()}

    def add_to(self, system: System, level: int) -> None:
        """Add the soft targets of a level."""
        if level in self.targets:
            q = self.targets[level]
            some = q.sum(1) > 0
            system.add(self.phi[: len(q)][some], F.pad(q[some], (0, len(system.N) - q.shape[1])))

    def state_dict(self) -> dict[str, Any]:
        targets = {str(level): q for level, q in self.targets.items()}
        return {"phi": self.phi, "y": self.y, "targets": targets}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.phi, self.y = state["phi"].clone(), state["y"].clone()
        self.targets = {int(level): q.clone() for level, q in state["targets"].items()}


class Clock:
    """Counters, recent labels, and how well recency explains them."""

    def __init__(self) -> None:
        self.seen = 0
        self.refreshed = 0  # samples seen at the last completion
        self.fitted = 0  # samples seen at the last fit of the reliabilities
        self.advantage = 0.0  # log-likelihood of labels by recency, minus that without
        self.recent = torch.zeros(0, dtype=torch.long)  # (m,) nodes of the last labels

    @property
    def times(self) -> Tensor:
        """(m,) of `recent`."""
        return torch.arange(self.seen - len(self.recent), self.seen)

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.recent = state["recent"].clone()


class Solution(NamedTuple):
    """What prediction needs."""

    weights: dict[int, Tensor]  # (C, D) per level, coarsest first, balanced
    leaves: Tensor  # (paths, levels)
    placements: Placements


class Amber(Learner):
    """Stores features instead of images. The regressions are solved when something is to be predicted."""

    coherent = True

    def __init__(self, setup: Setup, settings: AmberSettings) -> None:
        self.settings = s = settings
        self.features = StageFeatures(setup.backbone, s.stages, s.side, s.mirror and setup.flip)
        self.statistics = Statistics(self.features.dim)
        self.window = Window(self.features.dim)
        self.clock = Clock()
        self.rng = Rng(setup.seed, "learner")
        self.memory = Reservoir(s.calibration, self.rng)
        self.reliability = Reliability()
        self.tree = Tree()
        self._solution: Solution | None = None
        self._solved_at = 0  # samples seen by then

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        phi, clock = self.features.kept(batch.x), self.clock
        self.tree.known = TreeTable.of(taxonomy)
        table = self.tree.trusted
        self.statistics.add(phi, batch.y, table)
        self.window.push(phi, batch.y)
        self.memory.follow(taxonomy)
        leaves = table.is_leaf[batch.y]
        self.memory.insert(phi=phi[leaves], y=batch.y[leaves])
        clock.seen += len(phi)
        clock.recent = torch.cat([clock.recent, batch.y])[-RECENT:]
        if clock.seen - clock.refreshed >= min(self.settings.refresh, clock.refreshed // GROWTH):
            if self.settings.completion != "never":
                self._complete(table)
            clock.refreshed = clock.seen
            if clock.seen >= clock.fitted * (1 + 1 / GROWTH):
                if self.settings.doubt:
                    self.tree.doubt(doubts(self.statistics, self.tree.known, self.settings.gamma))
                self._fit(self.tree.trusted)
                clock.fitted = clock.seen
        return self._stats()

    def predict(self, x: Tensor) -> dict[int, Tensor]:
        return self._predict(x, lag=0)

    def foresee(self, x: Tensor) -> dict[int, Tensor]:
        """By a solution that may be up to `refresh` samples old."""
        return self._predict(x, self.settings.refresh)

    @torch.no_grad()
    def _predict(self, x: Tensor, lag: int) -> dict[int, Tensor]:
        phi, solution = self.features.kept(x), self._solved(lag)
        outputs = {level: phi @ W.t() for level, W in solution.weights.items()}
        return self.reliability.probabilities(outputs, solution.leaves, solution.placements)

    def _complete(self, table: TreeTable) -> None:
        """Complete the labels in the window downward. Those that leave it are added to the statistics."""
        clock, window, s = self.clock, self.window, self.settings
        self._compare_recency(table)
        if s.completion == "always" or clock.advantage > s.margin:
            logits = {}
            for level in table.levels[1:]:
                A, M, _ = self.statistics.system(level, table)
                logits[level] = self.reliability.beta(level) * (window.phi @ solve(factor(A, s.gamma), M).t())
            times = torch.arange(clock.seen - len(window.y), clock.seen)
            kernel = recency(times, clock.times, s.recency)
            window.targets = complete(logits, window.y, kernel, clock.recent, table)
        else:
            window.targets = {}
        leaving = max(0, len(window.y) - s.window)
        for level, q in window.targets.items():
            some = q[:leaving].sum(1) > 0
            if some.any():
                self.statistics.add_soft(window.phi[:leaving][some], q[:leaving][some], level)
        window.drop(leaving)

    def _compare_recency(self, table: TreeTable) -> None:
        """Do the labels since the last completion follow from those nearby, better than from all recent ones?"""
        clock = self.clock
        new = min(clock.seen - clock.refreshed, len(clock.recent))
        y, times = clock.recent[-new:], clock.times[-new:]
        local = recency(times, clock.times, self.settings.recency)
        wide = recency(times, clock.times, GLOBAL)
        for place, level in enumerate(table.levels[1:], 1):
            width, columns, recent = table.width(level), table.columns(y, level), table.columns(clock.recent, level)
            priors = nearby(local, recent, width), nearby(wide, recent, width)
            for coarser in table.levels[:place]:
                own = table.columns(y, coarser)
                rows = (columns != UNKNOWN) & (own != UNKNOWN)
                known = columns[rows], table.ancestors(level, coarser), own[rows]
                with_recency, without = (evidence(prior[rows], *known) for prior in priors)
                clock.advantage += with_recency - without

    def _fit(self, table: TreeTable) -> None:
        """Fit the reliabilities to stored samples, each as if it had not been learned."""
        stored = self.memory.read(table.is_leaf[self.memory.nodes].nonzero()[:, 0].numpy())
        phi, y = stored["phi"], stored["y"]
        outputs: dict[int, Tensor] = {}
        placements: Placements = {}
        for level in table.levels:
            A, M, N = self._system(level, table)
            L, columns = factor(A, self.settings.gamma), table.columns(y, level)
            rows = columns != UNKNOWN
            W = solve(L, M)
            z = phi @ W.t()
            z[rows] = leave_one_out(phi[rows], columns[rows], L, M)
            outputs[level] = z * self._balance(level, N, table)
            placements |= self._placed(level, W, table)
        self.reliability.fit(outputs, y, table, placements)

    def _system(self, level: int, table: TreeTable) -> System:
        """Normal equations of all samples, with the soft targets of those in the window."""
        system = self.statistics.system(level, table)
        self.window.add_to(system, level)
        return system

    def _balance(self, level: int, N: Tensor, table: TreeTable) -> Tensor:
        return balance(N, table.leaves[:, table.levels.index(level)], self.settings.balance)

    def _placed(self, level: int, W: Tensor, table: TreeTable) -> Placements:
        """Where leaves below a level, without a known class there, may lie by their images: W (C, D)."""
        counts, nodes = self.statistics.counts.filled, table.is_leaf.nonzero()[:, 0]
        homeless = (table.node_levels[nodes] > level) & (table.columns(nodes, level) == UNKNOWN) & (counts[nodes] > 0)
        rows = homeless.nonzero()[:, 0]
        if not len(rows):
            return {}
        means = self.statistics.sums.filled[nodes[rows]] / counts[nodes[rows], None]
        return {level: Placement(rows, placement(W, means))}

    @torch.no_grad()
    def _solved(self, lag: int) -> Solution:
        """Not older than `lag` samples."""
        if self._solution is None or self.clock.seen - self._solved_at > lag:
            table = self.tree.trusted
            weights: dict[int, Tensor] = {}
            placements: Placements = {}
            for level in table.levels:
                A, M, N = self._system(level, table)
                W = solve(factor(A, self.settings.gamma), M)
                weights[level] = self._balance(level, N, table)[:, None] * W
                placements |= self._placed(level, W, table)
            self._solution, self._solved_at = Solution(weights, table.leaves, placements), self.clock.seen
        return self._solution

    def _stats(self) -> dict[str, float]:
        completed = [float((q.sum(1) > 0.5).double().mean()) for q in self.window.targets.values() if len(q)]
        stats = {"completed": completed[-1] if completed else 0.0, "advantage": self.clock.advantage}
        return stats | {f"beta.{level}": math.exp(value) for level, value in self.reliability.log_beta.items()}

    def held(self) -> Tensor:
        return self.memory.nodes

    def reader(self) -> Self:
        self._solved(lag=0)
        return super().reader()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._solution = None

    def components(self) -> dict[str, Stateful]:
        return {
            "statistics": self.statistics,
            "window": self.window,
            "clock": self.clock,
            "rng": self.rng,
            "memory": self.memory,
            "reliability": self.reliability,
            "tree": self.tree,
        }


class Tree:
    """The tree at the last batch, and the links in it that the images contradict."""

    training_only = True

    def __init__(self) -> None:
        self.known = TreeTable.empty()
        self.doubted: dict[int, int] = {}  # node -> its parent
        self._trusted: tuple[TreeTable, TreeTable] | None = None  # of which tree, without the doubted links

    @property
    def trusted(self) -> TreeTable:
        """Without the doubted links."""
        if self._trusted is None or self._trusted[0] is not self.known:
            self._trusted = self.known, self.known.without(self.doubted) if self.doubted else self.known
        return self._trusted[1]

    def doubt(self, links: dict[int, int]) -> None:
        self.doubted, self._trusted = links, None

    def state_dict(self) -> dict[str, Any]:
        doubted = {str(node): parent for node, parent in self.doubted.items()}
        return self.known.state_dict() | {"doubted": doubted}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.known = TreeTable.from_state(state)
        self.doubt({int(node): parent for node, parent in state["doubted"].items()})
