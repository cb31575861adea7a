"""AMBER: analytic heads on multi-stage frozen features, balanced, with every label completed, by ridge regression.

No network is trained. Features of several stages of a frozen network enter one ridge regression per level, whose sums
add up (`heads/ridge`). A label is completed upward by the tree, and downward by the classes nearby in the stream
(`heads/completion`): a sample waits in a window, so that later labels can explain it. Outputs of all levels are
combined to one distribution over paths (`heads/reliability`).
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.nn.features import StageFeatures
from dhocl.nn.heads.anchoring import doubts, placement
from dhocl.nn.heads.balance import balance
from dhocl.nn.heads.bulk import BulkSums
from dhocl.nn.heads.completion import complete
from dhocl.nn.heads.penalties import Penalties
from dhocl.nn.heads.reliability import Placement, Placements, Reliability
from dhocl.nn.heads.ridge import LeaveOneOut, Readout, Statistics, System, factor, outputs
from dhocl.nn.heads.window import CompletionSettings, Window
from dhocl.nn.learner import Batch, Learner, Setup, Stateful
from dhocl.nn.ledger import ROUNDING
from dhocl.nn.memory import Reservoir

GROWTH = 8  # reliabilities are fitted again when the stream has grown by an eighth
ROUNDS = 10  # of fits after a data set was learned at once, or another model was merged
LATE = 32  # in a long stream, labels are completed when it has grown by a thirty-second
LAG = 2  # completions that foresight may lack; solving for it is the largest part of a step


@dataclass(frozen=True)
class AmberSettings(CompletionSettings):
    gamma: float = 0.75  # ridge penalty of the final features, at the start
    stages: float = 0.5  # weight of the features of earlier stages at the start; 0: the final features alone
    adapt: bool = True  # learn the penalties of all stages
    side: float = 1.0  # side of the images that the network sees, relative to those of the stream
    mirror: bool = True  # average the features of an image and its mirror image, where mirroring keeps the class
    balance: float = 0.5  # exponent of the correction for frequent classes; 0: none
    refresh: int = 128  # samples between completions; up to `window` of them in a long stream
    calibration: int = 512  # features of leaves kept to fit reliabilities
    doubt: bool = True  # leave out links that the images contradict

    positive = frozenset({"gamma", "side", "recency", "refresh"})


class Solution(NamedTuple):
    """What prediction needs."""

    readouts: dict[int, Readout]  # per level, coarsest first, balanced
    leaves: Tensor  # (paths, levels)
    placements: Placements

    def __deepcopy__(self, memo: object) -> Solution:
        return self  # it never changes, so readers share it

    def state_dict(self) -> dict[str, Any]:
        return {
            "readouts": {str(level): readout._asdict() for level, readout in self.readouts.items()},
            "leaves": self.leaves,
            "placements": {str(level): placement._asdict() for level, placement in self.placements.items()},
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], device: torch.device) -> Solution:
        def here(values: Tensor) -> Tensor:
            return values.to(device, copy=True)

        readouts = {
            int(level): Readout(here(parts["rows"]), None if parts["L"] is None else here(parts["L"]))
            for level, parts in state["readouts"].items()
        }
        placements = {
            int(level): Placement(here(placed["rows"]), here(placed["p"]))
            for level, placed in state["placements"].items()
        }
        return cls(readouts, here(state["leaves"]), placements)


class Amber(Learner):
    """Stores features instead of images. The regressions are solved when something is to be predicted."""

    coherent = True

    def __init__(self, setup: Setup, settings: AmberSettings) -> None:
        self.settings = s = settings
        self.features = StageFeatures(setup.backbone, bool(s.stages), s.side, s.mirror and setup.flip)
        weights = [*[s.stages] * (len(self.features.widths) - 1), 1.0]
        self.device = setup.backbone.device
        self.penalties = Penalties(self.features.widths, [s.gamma / weight**2 for weight in weights], self.device)
        self.statistics = Statistics(self.features.dim, device=self.device)
        self.window = Window(self.features.dim, s, self.device)
        self.rng = Rng(setup.seed, "learner")
        self.memory = Reservoir(s.calibration, self.rng)
        self.reliability = Reliability()
        self.tree = Tree(self.device)
        self._solution: Solution | None = None
        self._unsolved = 0  # samples learned or forgotten since then
        self._learned: Tensor | None = None  # of a reader: window and memory are those of the learner, which learns on
        self._foresight: Solution | None = None  # it depends on the stream alone, not on what was predicted meanwhile
        self._behind = 0  # samples learned since then

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        phi, y, window = self.features.kept(batch.x), batch.y.to(self.device), self.window
        self.tree.known = TreeTable.of(taxonomy, self.device)
        table = self.tree.trusted
        self.statistics.add(phi, y, table)
        window.push(phi, y, batch.keys)
        self.memory.follow(taxonomy)
        leaves = table.is_leaf[y]
        self.memory.insert(phi=phi[leaves], y=y[leaves])
        self._unsolved += len(phi)
        self._behind += len(phi)
        if window.new >= self._period():
            window.refresh(self.statistics, self.reliability.beta, self.penalties, table)
            if window.seen >= self.reliability.fitted_at * (1 + 1 / GROWTH):
                self._refit()
        return window.stats() | self.reliability.stats()

    def forget(self, batch: Batch, taxonomy: Taxonomy) -> None:
        """Exact for all sums, soft targets included. What was fitted to the samples meanwhile stays."""
        samples = list(zip(batch.keys.tolist(), batch.y.tolist(), strict=True))
        if any(self.window.remembered(*sample) < count for sample, count in Counter(samples).items()):
            raise InputError("a sample is too old to be forgotten: how its label was completed is not known any more")
        phi = self.features.kept(batch.x)
        for row, sample in enumerate(samples):
            self.window.remove(*sample, phi[row], self.statistics)
        self.statistics.remove(phi, batch.y.to(self.device), self.tree.known)
        self.memory.follow(taxonomy)
        self.memory.remove(self.memory.find("phi", phi.cpu(), taxonomy.resolve(batch.y), ROUNDING))
        self._unsolved += len(phi)
        self._behind += len(phi)

    def _period(self) -> int:
        """Samples between completions: few at first, many when they are a small part of the stream."""
        s, before = self.settings, self.window.seen - self.window.new
        return max(min(s.refresh, before // GROWTH), min(s.window, before // LATE))

    def frozen_features(self, x: Tensor) -> Tensor:
        return self.features.kept(x)

    def learned(self) -> Tensor:
        """Those in the window, and the leaves that are kept to fit reliabilities."""
        if self._learned is not None:
            return self._learned
        kept = [self.memory.columns["phi"][: self.memory.size].to(self.device)] if self.memory.columns else []
        return torch.cat([self.window.phi, *kept])

    def predict(self, x: Tensor) -> dict[int, Tensor]:
        return self._predict(x, self._solved())

    def foresee(self, x: Tensor) -> dict[int, Tensor]:
        """By a solution that may lack the last samples, as many as there are in LAG times between completions."""
        if self._foresight is None or self._behind > LAG * self._period():
            self._foresight, self._behind = self._solved(), 0
        return self._predict(x, self._foresight)

    @torch.no_grad()
    def _predict(self, x: Tensor, solution: Solution) -> dict[int, Tensor]:
        phi = self.features.kept(x)
        z = {level: readout(phi) for level, readout in solution.readouts.items()}
        return self.reliability.probabilities(z, solution.leaves, solution.placements)

    def _settle(self) -> None:
        """Fit to many samples that came at once what else is fitted now and then."""
        for _ in range(ROUNDS):
            self._refit()
        self._solution = self._foresight = None

    def _refit(self) -> None:
        if self.settings.doubt:
            self.tree.doubt(doubts(self.statistics, self.tree.known, self.penalties))
        self._fit(self.tree.trusted)
        self.reliability.fitted_at = self.window.seen

    def _fit(self, table: TreeTable) -> None:
        """Fit reliabilities and penalties to stored samples, each as if it had not been learned."""
        stored = self.memory.read(table.is_leaf[self.memory.nodes].nonzero()[:, 0].cpu().numpy())
        phi, y = stored["phi"].to(self.device), stored["y"].to(self.device)
        left_out: dict[int, LeaveOneOut] = {}
        scales: dict[int, Tensor] = {}  # (C,)
        placements: Placements = {}
        for level in table.levels:
            A, M, N = self._system(level, table)
            L = factor(A, self.penalties(level))
            weights = self.statistics.weights(y, level, table)
            left_out[level] = LeaveOneOut(phi, table.columns(y, level), L, M, weights)
            scales[level] = self._balance(level, N, table)
            placements |= self._placed(level, L, M, table)
        z = {level: out.z * scales[level] for level, out in left_out.items()}
        self.reliability.fit(z, y, table, placements)
        if self.settings.adapt and len(y):
            for level, gradient in self.reliability.gradients(z, y, table, placements).items():
                slopes = left_out[level].slopes(gradient * scales[level], self.penalties(level))
                self.penalties.learn(slopes, level)

    def _system(self, level: int, table: TreeTable) -> System:
        """Normal equations of all samples, with the soft targets of those in the window."""
        system = self.statistics.system(level, table)
        self.window.add_to(system, level, table)
        return system

    def _balance(self, level: int, N: Tensor, table: TreeTable) -> Tensor:
        return balance(N, table.leaves[:, table.levels.index(level)], self.settings.balance)

    def _placed(self, level: int, L: Tensor, M: Tensor, table: TreeTable) -> Placements:
        """Where leaves below a level, without a known class there, may lie by their images."""
        counts, nodes = self.statistics.counts.filled, table.is_leaf.nonzero()[:, 0]
        homeless = (table.node_levels[nodes] > level) & (table.columns(nodes, level) == UNKNOWN) & (counts[nodes] > 0)
        rows = homeless.nonzero()[:, 0]
        if not len(rows):
            return {}
        means = self.statistics.sums.filled[nodes[rows]] / counts[nodes[rows], None]
        return {level: Placement(rows, placement(outputs(means, L, M)))}

    @torch.no_grad()
    def _solved(self) -> Solution:
        """Of all samples."""
        if self._solution is None or self._unsolved:
            table = self.tree.trusted
            readouts: dict[int, Readout] = {}
            placements: Placements = {}
            for level in table.levels:
                A, M, N = self._system(level, table)
                L = factor(A, self.penalties(level))
                readouts[level] = Readout.of(L, M, self._balance(level, N, table))
                placements |= self._placed(level, L, M, table)
            self._solution, self._unsolved = Solution(readouts, table.leaves, placements), 0
        return self._solution

    def sum_up(self, phi: Tensor, y: Tensor, marks: Tensor, taxonomy: Taxonomy) -> BulkSums:
        """Of samples with features phi (b, D), labels y (b,) and marks (b,), see `heads/bulk`."""
        found = BulkSums(self.features.dim, self.settings.calibration, self.device)
        found.add(phi, y.to(self.device), marks.to(self.device), TreeTable.of(taxonomy, self.device))
        return found

    def sum_up_guesses(self, phi: Tensor, y: Tensor) -> BulkSums:
        """Soft targets of samples phi (b, D) below their labels y (b,), by outputs and by how frequent classes are."""
        found, table, y = BulkSums(self.features.dim, 0, self.device), self.tree.trusted, y.to(self.device)
        logits, prior = {}, {}
        for level in table.levels[1:]:
            A, M, N = self.statistics.system(level, table)
            logits[level] = self.reliability.beta(level) * outputs(phi, factor(A, self.penalties(level)), M)
            prior[level] = N.expand(len(phi), -1)
        found.add_soft(phi, complete(logits, y, prior, table))
        return found

    def adopt(self, sums: BulkSums, taxonomy: Taxonomy) -> None:
        """Learn what was summed up, as if it had come before all else."""
        self.tree.known = TreeTable.of(taxonomy, self.device)
        self.statistics.join(sums.statistics)
        self.statistics.grow(len(taxonomy))
        self.window.seen += sums.seen
        sample = Reservoir.holding(sums.sample.seen, phi=sums.sample.phi, y=sums.sample.y)
        self.memory.absorb(sample, torch.arange(len(taxonomy)))
        self._settle()

    def absorb(self, other: Self, nodes: Tensor, taxonomy: Taxonomy) -> None:
        """Sums are added. Samples in the window of the other are completed by what it knows, and added."""
        before, table, nodes = other.tree.known, TreeTable.of(taxonomy, self.device), nodes.to(self.device)
        statistics, window = other._closed()
        weight = other.window.seen / max(1, self.window.seen + other.window.seen)
        columns = {level: table.columns(nodes[before.nodes(level)], level) for level in before.levels}
        moved = {int(nodes[node]): int(nodes[parent]) for node, parent in other.tree.doubted.items()}
        self.tree.known = table
        self.tree.doubt(moved | self.tree.doubted)
        self.statistics.join(statistics.moved(nodes, columns, table))
        self.window.absorb(window, nodes, columns)
        self.memory.absorb(other.memory, nodes.cpu())
        self.penalties.absorb(other.penalties, weight)
        self.reliability.absorb(other.reliability, weight)
        self._settle()

    def strip(self) -> None:
        self.statistics, _ = self._closed()
        self.window.empty()
        self.memory = Reservoir(self.settings.calibration, self.rng)
        self._solution = self._foresight = None

    def _closed(self) -> tuple[Statistics, Window]:
        """Copies, after all samples have left the window, completed."""
        statistics, window = copy.deepcopy((self.statistics, self.window))
        window.refresh(statistics, self.reliability.beta, self.penalties, self.tree.trusted, keep=0)
        return statistics, window

    def held(self) -> Tensor:
        return self.memory.nodes

    def reader(self, lagging: bool = False) -> Self:
        behind = self._foresight if lagging and self._behind <= LAG * self._period() else None
        solution = behind or self._solved()
        twin = super().reader(lagging)
        twin._learned = self.learned()
        twin._solution, twin._unsolved = solution, 0  # kept: its statistics are those of the learner, which learns on
        return twin

    def state_dict(self) -> dict[str, Any]:
        foresight = self._foresight and self._foresight.state_dict()
        return super().state_dict() | {"foresight": foresight, "behind": self._behind}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._solution = None
        foresight = state.get("foresight")  # an earlier version did not store it
        self._foresight = Solution.from_state(foresight, self.device) if foresight else None
        self._behind = state.get("behind", 0)

    def components(self) -> dict[str, Stateful]:
        return {
            "statistics": self.statistics,
            "window": self.window,
            "rng": self.rng,
            "memory": self.memory,
            "reliability": self.reliability,
            "penalties": self.penalties,
            "tree": self.tree,
        }


class Tree:
    """The tree at the last batch, and the links in it that the images contradict."""

    training_only = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.known = TreeTable.empty(device)
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
        self.known = TreeTable.from_state(state, self._device)
        self.doubt({int(node): parent for node, parent in state["doubted"].items()})
