"""A method is a class with two verbs: learn a batch, predict at every level."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from dhocl.backbones import Backbone
from dhocl.memory import Memory
from dhocl.optim import Optimizer
from dhocl.settings import Settings
from dhocl.taxonomy import Taxonomy


class Batch(NamedTuple):
    x: Tensor  # (b, 3, H, W) uint8, as they arrived
    y: Tensor  # (b,) node ids of the taxonomy they are learned with


class Setup(NamedTuple):
    """What every method is given alike."""

    backbone: Backbone
    buffer: int  # images that may be kept
    replay_batch: int
    flip: bool  # a mirrored image still shows its class
    seed: int
    samples: int | None = None  # length of the stream; None: unknown, it may never end


@dataclass(frozen=True)
class TrainSettings(Settings):
    """What every method that trains a network shares."""

    lr_backbone: float = 1e-4
    lr_heads: float = 1e-3
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class PeriodicSettings(Settings):
    """For methods that act at the end of a task. A stream has no tasks: they act ten times a stream."""

    every: int = 0  # samples; 0: a tenth of the stream, or 500 where its length is unknown

    def due(self, setup: Setup, seen: int, came: int) -> int:
        """How often it is time, now that `came` samples have brought the number to `seen`."""
        every = self.every or (500 if setup.samples is None else math.ceil(setup.samples / 10))
        return seen // every - (seen - came) // every


class Part(Protocol):
    """A piece of a learner's state: nested dicts of tensors, numbers and strings."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Learner(ABC):
    """Sees batches and the taxonomy known so far, never the true tree."""

    @abstractmethod
    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        """Learn from a batch, once; numbers worth plotting."""

    @abstractmethod
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        """(B, 3, H, W) uint8 -> probabilities (B, classes) per level, as wide as the taxonomy last learned with."""

    @abstractmethod
    def parts(self) -> dict[str, Part]:
        """Everything that changes while learning: what a checkpoint must hold."""

    def held(self) -> Tensor:
        """(n,) nodes of the stored images."""
        return torch.empty(0, dtype=torch.long)

    def matrices(self) -> dict[str, Tensor]:
        """What is worth looking at in a report, by name."""
        return {}

    def reader(self) -> Self:
        """A copy for predicting alone, which stays as it is while this one learns on."""
        shared = [part for part in self.parts().values() if isinstance(part, (Memory, Optimizer))]
        return copy.deepcopy(self, {id(part): part for part in shared})

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
