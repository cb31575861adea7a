"""Online-LoRA (Wei et al. 2025): low-rank changes of a frozen backbone, merged into it when the loss has settled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from dhocl.errors import InputError
from dhocl.learner import Batch, Part, Setup
from dhocl.memory import Memory, Reservoir
from dhocl.methods.er import ER, ReplaySettings
from dhocl.objectives import LossName
from dhocl.rng import Rng
from dhocl.taxonomy import UNKNOWN, Taxonomy

ATTENTION = {"query", "value", "q_proj", "v_proj"}


@dataclass(frozen=True)
class OnLoraSettings(ReplaySettings):
    """The original's thresholds are losses of its data sets. Here a loss of 1 is that of a guess, at any level and
    among any number of classes, so that they carry over. Its means of 6.0 (100 classes) and 5.6 (1,000) are 1.3 and
    0.8, its variances of 0.1 and 0.04 are 0.005 and 0.001, over batches twice as large as ours."""

    loss: LossName = "multi_ce"
    lr_backbone: float = 3e-3  # of A and B: that of an adapter, as in halo
    rank: int = 4
    penalty: float = 2000.0
    memory: Literal["reservoir", "hard"] = "reservoir"  # hard: keep and replay only the hardest images, as in the paper
    hard: int = 4  # hardest stored images: importance is computed from them, and memory=hard keeps only them
    window: int = 5  # batches whose losses are looked at together
    plateau_mean: float = 1.0
    plateau_variance: float = 0.01

    positive = frozenset({"rank", "window"})


def relative_losses(logits: dict[int, Tensor], targets: Tensor) -> Tensor:
    """(n, levels) CE / log(classes), 1 for a guess; NaN where there is no class, 0 where there is one class only."""
    losses = [
        F.cross_entropy(z, targets[:, place].clamp_min(0), reduction="none") / math.log(max(2, z.shape[1]))
        for place, z in enumerate(logits.values())
    ]
    return torch.stack(losses, 1).masked_fill(targets == UNKNOWN, torch.nan)


class LowRank(nn.Module):
    """W -> W + BA for a weight of any shape, seen as a matrix (outputs, inputs)."""

    start: Tensor

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        self.A = nn.Parameter(torch.zeros(rank, weight[0].numel()))
        self.B = nn.Parameter(torch.zeros(len(weight), rank))
        self.register_buffer("start", torch.zeros_like(self.A))  # where A began; B begins at 0

    def forward(self, weight: Tensor) -> Tensor:
        return weight + (self.B @ self.A).view_as(weight)

    def reset(self, rng: Rng) -> None:
        """B = 0, so that nothing changes; A as in a fresh layer, or no gradient would ever reach B."""
        bound = self.A.shape[1] ** -0.5
        with torch.no_grad():
            self.start.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(self.A.shape))))
            self.A.copy_(self.start)
            self.B.zero_()


def places(f: nn.Module) -> list[Any]:
    """Where LoRA sits: the queries and values of attention, as in the original; in a network without attention the 1x1
    convolutions, which are its linear layers; in one without either, every convolution that mixes all channels."""
    attention = [m for name, m in f.named_modules() if isinstance(m, nn.Linear) and name.split(".")[-1] in ATTENTION]
    dense = [m for m in f.modules() if isinstance(m, nn.Conv2d) and m.groups == 1]
    pointwise = [m for m in dense if m.kernel_size == (1, 1)]
    if not (attention or dense):
        raise InputError("onlora finds no attention and no convolution in this backbone: choose another one")
    return attention or pointwise or dense


class Adapters:
    """The low-rank changes of a frozen backbone, and Ω, how much each of their numbers mattered so far."""

    def __init__(self, f: nn.Module, rank: int, rng: Rng) -> None:
        self._rng = rng
        self._hosts = places(f)
        f.requires_grad_(False)
        for host in self._hosts:
            parametrize.register_parametrization(host, "weight", LowRank(host.weight, rank))
        self._ranks: list[LowRank] = [host.parametrizations.weight[0] for host in self._hosts]
        for low in self._ranks:
            low.reset(rng)
        self.merges = 0
        self.omega = [torch.zeros_like(p) for p in self.parameters()]

    def parameters(self) -> list[nn.Parameter]:
        return [p for low in self._ranks for p in (low.A, low.B)]

    def penalty(self) -> Tensor:
        """½ Σ Ω Δ² over the numbers of A and B, Δ their change since they began, which in the original is at 0."""
        changes = [change for low in self._ranks for change in (low.A - low.start, low.B)]
        terms = [(omega * change.square()).sum() for omega, change in zip(self.omega, changes, strict=True)]
        return 0.5 * torch.stack(terms).sum()

    @torch.no_grad()
    def merge(self, importance: list[Tensor]) -> None:
        """W + BA becomes W, exactly, and new A and B begin; Ω becomes the mean of the importances so far."""
        self.merges += 1
        for omega, new in zip(self.omega, importance, strict=True):
            omega.lerp_(new, 1 / self.merges)
        for host, low in zip(self._hosts, self._ranks, strict=True):
            host.parametrizations.weight.original.copy_(host.weight)
            low.reset(self._rng)

    def state_dict(self) -> dict[str, Any]:
        omega = {str(i): omega for i, omega in enumerate(self.omega)}
        return {"merges": self.merges, "omega": omega, "rng": self._rng.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.merges = state["merges"]
        for i, omega in enumerate(self.omega):
            omega.copy_(state["omega"][str(i)])
        self._rng.load_state_dict(state["rng"])


class Plateau:
    """The loss has settled when a window's mean and variance are small, for the first time since the loss peaked."""

    def __init__(self, settings: OnLoraSettings) -> None:
        self._settings = settings
        self._window: list[float] = []
        self._settled: list[float] = []  # mean and variance at the last plateau, until the next peak

    def reached(self, loss: float) -> bool:
        self._window = [*self._window, loss][-self._settings.window :]
        if len(self._window) < self._settings.window:
            return False
        mean, variance = fmean(self._window), pvariance(self._window)
        if self._settled and mean > self._settled[0] + math.sqrt(self._settled[1]):
            self._settled = []
        if self._settled or mean >= self._settings.plateau_mean or variance >= self._settings.plateau_variance:
            return False
        self._settled = [mean, variance]
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"window": self._window, "settled": self._settled}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._window, self._settled = list(state["window"]), list(state["settled"])


class Hardest(Memory):
    """The items of the largest loss. All of them are replayed at every step, which refreshes their losses."""

    def draw(self, n: int) -> np.ndarray:
        return np.arange(self.size)

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        held = self.columns["loss"][: self.size] if self.columns else items["loss"][:0]
        order = torch.cat([held, items["loss"]]).argsort(descending=True, stable=True).numpy()
        top = order[: self.capacity]
        rows = top[top >= self.size] - self.size
        free = np.setdiff1d(np.arange(self.capacity), top[top < self.size])
        return rows, free[: len(rows)]


class OnLoRA(ER):
    """Backbone weights change only by A and B; heads train freely.

    The original stores four hard batches and nothing else. By default this method has the buffer and the replay batch
    of ER, as every method of the benchmark; `memory="hard"` stores a few single hard images. Merging is exact, where
    the original adds A to A and B to B. New factors start as in LoRA, where the original sets both to zero, which stops
    their gradients.
    """

    def __init__(self, setup: Setup, settings: OnLoraSettings) -> None:
        self.adapters = Adapters(setup.backbone, settings.rank, Rng(setup.seed, "lora"))
        self.settings = settings
        super().__init__(setup, settings)
        self.plateau = Plateau(settings)

    def make_memory(self) -> Memory:
        if self.settings.memory == "hard":
            return Hardest(min(self.settings.hard, self.setup.buffer), self.rng)
        return Reservoir(self.setup.buffer, self.rng)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.net.grow(taxonomy)
        self.memory.follow(taxonomy)
        slots = self.memory.draw(self.setup.replay_batch)
        batches = self.batches(batch, slots)
        outputs = self.outputs(batches)
        task = self.objectives(outputs, batches, taxonomy)
        penalty = self.settings.penalty * self.adapters.penalty()
        self.net.step(task + penalty)

        parts = [
            relative_losses(output.rows(0, len(y)).logits, taxonomy.complete(y))
            for output, (_, y) in zip(outputs, batches, strict=True)
        ]
        losses = torch.cat(parts).detach()  # (b + replayed, levels)
        new, again = losses[: len(batch.y)], losses[len(batch.y) :]
        if len(slots):
            self.memory.columns["loss"][slots] = again.nanmean(1)
        if self.plateau.reached(new.nanmean(0).nanmean().item()):
            self.consolidate(self.hardest())
        self.memory.insert(x=batch.x, y=batch.y, loss=new.nanmean(1))
        return {"loss": task.item(), "loss.penalty": penalty.item(), "merges": float(self.adapters.merges)}

    def batches(self, batch: Batch, slots: np.ndarray) -> list[Batch]:
        """The stream's and the replayed one. Hard images are few and odd, so they join the stream's."""
        items = self.memory.read(slots)
        if not len(slots):
            return [batch]
        if self.settings.memory == "hard":
            return [Batch(torch.cat([batch.x, items["x"]]), torch.cat([batch.y, items["y"]]))]
        return [batch, Batch(items["x"], items["y"])]

    def hardest(self) -> Sequence[Tensor]:
        """The stored images whose loss was largest when they were last in a batch."""
        if not self.memory.size:
            return []
        losses = self.memory.columns["loss"][: self.memory.size]
        return list(self.memory.read(losses.topk(min(self.settings.hard, self.memory.size)).indices.numpy())["x"])

    def consolidate(self, images: Sequence[Tensor]) -> None:
        """Merge; the importance of a number is Σ over the hard images of its squared gradient of -log p(answer)."""
        importance = [torch.zeros_like(p) for p in self.adapters.parameters()]
        for x in images:
            answers = self.objective.probabilities(self.net(x[None]).logits)
            surprise = -torch.stack([p.amax(1).log().mean() for p in answers.values()]).mean()
            gradients = torch.autograd.grad(surprise, self.adapters.parameters(), materialize_grads=True)
            importance = [total + g.square() for total, g in zip(importance, gradients, strict=True)]
        self.adapters.merge(importance)
        moments = self.net.optimizer.state_dict()  # those of the merged A and B say nothing of the new ones
        self.net.optimizer.load_state_dict({name: m for name, m in moments.items() if not name.startswith("f.")})

    def parts(self) -> dict[str, Part]:
        own: dict[str, Part] = {"adapters": self.adapters, "plateau": self.plateau}
        return own | super().parts()
