"""Online-LoRA (Wei et al. 2025): LoRA on a frozen backbone, merged into it at loss plateaus."""

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

from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.learner import Batch, Needs, Setup, Stateful
from dhocl.nn.memory import Memory, Reservoir
from dhocl.nn.objectives import LossName

ATTENTION = {"query", "value", "q_proj", "v_proj"}


@dataclass(frozen=True)
class OnLoraSettings(ReplaySettings):
    """Plateau thresholds apply to losses relative to a uniform guess, so they suit any number of classes. The original
    uses plain losses. Its means of 6.0 (100 classes) and 5.6 (1,000) correspond to 1.3 and 0.8, its variances of 0.1
    and 0.04 to 0.005 and 0.001, for batches twice as large as ours."""

    loss: LossName = "multi_ce"
    lr_backbone: float = 3e-3  # of A and B
    rank: int = 4
    penalty: float = 2000.0
    memory: Literal["reservoir", "hard"] = "reservoir"  # hard: only the hardest images, as in the paper
    hard: int = 4  # number of hardest images: they give the importance, and memory=hard stores only them
    window: int = 5  # batches whose losses are tested for a plateau
    plateau_mean: float = 1.0
    plateau_variance: float = 0.01

    positive = frozenset({"rank", "window"})


def relative_losses(logits: dict[int, Tensor], targets: Tensor) -> Tensor:
    """(n, levels) CE / log(classes): 1 for a uniform guess, NaN without a label, 0 where the level has one class."""
    losses = [
        F.cross_entropy(z, targets[:, place].clamp_min(0), reduction="none") / math.log(max(2, z.shape[1]))
        for place, z in enumerate(logits.values())
    ]
    return torch.stack(losses, 1).masked_fill(targets == UNKNOWN, torch.nan)


class LowRank(nn.Module):
    """W -> W + BA for a weight of any shape, as a matrix (outputs, inputs)."""

    start: Tensor

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        self.A = nn.Parameter(weight.new_zeros(rank, weight[0].numel()))
        self.B = nn.Parameter(weight.new_zeros(len(weight), rank))
        self.register_buffer("start", torch.zeros_like(self.A))  # initial A; the initial B is 0

    def forward(self, weight: Tensor) -> Tensor:
        return weight + (self.B @ self.A).view_as(weight)

    def reset(self, rng: Rng) -> None:
        """B = 0, so that the output does not change; A is random: with A = 0, B would get no gradient."""
        bound = self.A.shape[1] ** -0.5
        with torch.no_grad():
            self.start.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(self.A.shape))))
            self.A.copy_(self.start)
            self.B.zero_()


def places(f: nn.Module) -> list[Any]:
    """Layers to adapt: attention queries and values, as in the original; else 1x1, else all ungrouped convolutions."""
    attention = [m for name, m in f.named_modules() if isinstance(m, nn.Linear) and name.split(".")[-1] in ATTENTION]
    dense = [m for m in f.modules() if isinstance(m, nn.Conv2d) and m.groups == 1]
    pointwise = [m for m in dense if m.kernel_size == (1, 1)]
    if not (attention or dense):
        raise InputError("onlora: no attention and no convolution in this backbone; choose another `backbone`")
    return attention or pointwise or dense


class Adapters:
    """LoRA factors of a frozen backbone, and the importance Ω of each of their entries."""

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
        """½ Σ Ω Δ² over the entries of A and B; Δ is the change since `reset` (in the original, the value itself)."""
        changes = [change for low in self._ranks for change in (low.A - low.start, low.B)]
        terms = [(omega * change.square()).sum() for omega, change in zip(self.omega, changes, strict=True)]
        return 0.5 * torch.stack(terms).sum()

    @torch.no_grad()
    def merge(self, importance: list[Tensor]) -> None:
        """Set W to W + BA exactly, reset A and B, and update Ω, the mean of all importances so far."""
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
    """Detects when mean and variance of a window of losses are small, once after each peak of the loss."""

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
    """Stores the items with the largest loss. Every step replays all of them, which updates their losses."""

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
    """Trains A and B in the backbone, and all weights of the heads.

    Deviations: the original stores only four hard batches. By default this method has ER's buffer and replay batch, as
    all methods of the benchmark; `memory="hard"` stores a few hard images. Merging is exact; the original adds A to A
    and B to B. New factors are initialised as in LoRA; the original sets both to zero, so they get no gradients.
    """

    settings: OnLoraSettings

    def __init__(self, setup: Setup, settings: OnLoraSettings) -> None:
        self.adapters = Adapters(setup.backbone, settings.rank, Rng(setup.seed, "lora"))
        super().__init__(setup, settings)
        self.plateau = Plateau(settings)

    def make_memory(self) -> Memory:
        if self.settings.memory == "hard":
            return Hardest(min(self.settings.hard, self.setup.buffer), self.rng)
        return Reservoir(self.setup.buffer, self.rng)

    def needs(self, batch: int, samples: int) -> Needs:
        plain = super().needs(batch, samples)
        if self.settings.memory == "reservoir":
            return plain
        stored = min(self.settings.hard, plain.stored)
        return Needs(stored, self.objective.copies * (batch + stored))

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.follow(taxonomy)
        slots = self.memory.draw(self.setup.replay_batch)
        batches = self.batches(batch, slots)
        augmented = self.augmented(batches)
        outputs = self.outputs(augmented)
        task = self.objectives(outputs, augmented, taxonomy)
        penalty = self.settings.penalty * self.adapters.penalty()
        self.net.step(task + penalty)

        parts = [
            relative_losses(output.rows(0, len(each.y)).logits, self.net.targets(each.y, taxonomy))
            for output, each in zip(outputs, batches, strict=True)
        ]
        losses = torch.cat(parts).detach().cpu()  # (b + replayed, levels)
        new, again = losses[: len(batch.y)], losses[len(batch.y) :]
        if len(slots):
            self.memory.columns["loss"][slots] = again.nanmean(1)
        if self.plateau.reached(new.nanmean(0).nanmean().item()):
            self.consolidate(self.hardest())
        self.memory.insert(x=batch.x, y=batch.y, loss=new.nanmean(1))
        return {"loss": task.item(), "loss.penalty": penalty.item(), "merges": float(self.adapters.merges)}

    def batches(self, batch: Batch, slots: np.ndarray) -> list[Batch]:
        """The stream batch and the replay batch. With memory=hard, the few hard images join the stream batch."""
        items = self.memory.read(slots)
        if not len(slots):
            return [batch]
        if self.settings.memory == "hard":
            return [Batch(torch.cat([batch.x, items["x"]]), torch.cat([batch.y, items["y"]]))]
        return [batch, Batch(items["x"], items["y"])]

    def hardest(self) -> Sequence[Tensor]:
        """The stored images with the largest loss at their last use."""
        if not self.memory.size:
            return []
        losses = self.memory.columns["loss"][: self.memory.size]
        return list(self.memory.read(losses.topk(min(self.settings.hard, self.memory.size)).indices.numpy())["x"])

    def consolidate(self, images: Sequence[Tensor]) -> None:
        """Merge. Importance of an entry: Σ over the hard images of its squared gradient of -log p(prediction)."""
        importance = [torch.zeros_like(p) for p in self.adapters.parameters()]
        for x in images:
            answers = self.objective.probabilities(self.net(x[None]).logits)
            nll = -torch.stack([p.amax(1).log().mean() for p in answers.values()]).mean()
            gradients = torch.autograd.grad(nll, self.adapters.parameters(), materialize_grads=True)
            importance = [total + g.square() for total, g in zip(importance, gradients, strict=True)]
        self.adapters.merge(importance)
        moments = self.net.optimizer.state_dict()  # those of the merged A and B do not fit the new ones
        self.net.optimizer.load_state_dict({name: m for name, m in moments.items() if not name.startswith("f.")})

    def components(self) -> dict[str, Stateful]:
        return {"adapters": self.adapters, "plateau": self.plateau, **super().components()}
