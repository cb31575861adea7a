"""Interface of a method: learn from a batch, predict at every level."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.core.settings import Settings
from dhocl.core.taxonomy import Taxonomy
from dhocl.nn.backbones import Backbone
from dhocl.nn.ledger import content_keys


@dataclass(frozen=True, eq=False)
class Batch:
    x: Tensor  # (b, 3, H, W) uint8, without augmentation
    y: Tensor  # (b,) node ids of the current taxonomy

    @cached_property
    def keys(self) -> Tensor:
        """(b,) what the images are known by in a ledger."""
        return content_keys(self.x)


class Needs(NamedTuple):
    """Images that take memory."""

    stored: int = 0  # pixels, in main memory
    trained: int = 0  # activations, in one backward pass


class Setup(NamedTuple):
    """Arguments common to all methods."""

    backbone: Backbone
    buffer: int  # images that may be stored
    replay_batch: int
    flip: bool  # horizontal flips preserve the class
    seed: int
    samples: int | None = None  # length of the stream; None: unknown

    def replay_needs(self, batch: int, samples: int) -> Needs:
        """Of plain replay, see `Learner.needs`."""
        return Needs(min(self.buffer, samples), batch + min(self.buffer, self.replay_batch))


@dataclass(frozen=True)
class TrainSettings(Settings):
    """Settings of all methods that train a network."""

    lr_backbone: float = 1e-4
    lr_heads: float = 3e-3
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class PeriodicSettings(Settings):
    """For methods that act at the end of a task. A stream has no tasks, so by default they act ten times per stream."""

    every: int = 0  # samples; 0: a tenth of the stream, or 500 if its length is unknown

    def period(self, setup: Setup) -> int:
        """Samples."""
        return self.every or (500 if setup.samples is None else math.ceil(setup.samples / 10))

    def due(self, setup: Setup, seen: int, came: int) -> int:
        """How many periods ended with the last `came` of `seen` samples."""
        every = self.period(setup)
        return seen // every - (seen - came) // every


class Stateful(Protocol):
    """Has a state for checkpoints: nested dicts of tensors, numbers and strings.

    A class used only by `learn` sets `training_only = True`: `Learner.reader` then shares it instead of copying it.
    """

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@runtime_checkable
class Forgetful(Protocol):
    """A memory whose samples can be found and removed, see `nn/memory`."""

    def follow(self, taxonomy: Taxonomy) -> None: ...

    def find(self, column: str, values: Tensor, y: Tensor) -> np.ndarray: ...

    def remove(self, slots: np.ndarray) -> None: ...


class Learner(ABC):
    """Base class of all methods. It gets batches and the taxonomy known so far, never the true tree."""

    coherent = False  # True: `predict` returns calibrated marginals of one distribution over paths

    @abstractmethod
    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        """Train on a batch. Returns numbers to log, by name."""

    @abstractmethod
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        """(B, 3, H, W) uint8 -> probabilities (B, classes) per level, with the classes of the last `learn`."""

    def forget(self, batch: Batch, taxonomy: Taxonomy) -> None:
        """Undo `learn` for samples, whose labels are the nodes that they were learned with.

        Here, for methods that train a network: they are removed from the memory and no longer replayed. What the
        network has learned of them stays. A method whose state is a sum over samples overrides this and subtracts them.
        One that can not forget raises an InputError before anything is changed.
        """
        memory = self.components().get("memory")
        if not isinstance(memory, Forgetful):
            raise InputError(f"{type(self).__name__} can not forget samples: it has neither sums nor a memory of them")
        memory.follow(taxonomy)
        memory.remove(memory.find("x", batch.x, taxonomy.resolve(batch.y)))

    def needs(self, batch: int, samples: int) -> Needs:
        """How many images it has in memory, at most, in a stream of so many samples."""
        return Needs()

    def foresee(self, x: Tensor) -> dict[int, Tensor]:
        """`predict` for a batch that is about to be learned. May lag behind by some batches where that saves work."""
        return self.predict(x)

    def absorb(self, other: Self, nodes: Tensor, taxonomy: Taxonomy) -> None:
        """Learn what another learner has learned, which has the same backbone and settings.

        Args:
            other: it is not changed.
            nodes: (n,) what its nodes are in `taxonomy`.
            taxonomy: has the classes of both; those of this learner come first, with the same nodes.
        """
        raise InputError("models of this method can not be merged: what they learn does not add up; use amber")

    def strip(self) -> None:
        """Drop what is stored of single samples, as far as prediction does not need it."""
        raise InputError("models of this method are not made of sums; use amber")

    def frozen_features(self, x: Tensor) -> Tensor | None:
        """(B, 3, H, W) uint8 -> (B, D) features that never change, and that `predict` takes in place of the images.

        None if the network is trained.
        """
        return None

    def learned(self) -> Tensor | None:
        """(n, D) features of samples that were learned, as many as are kept; None if none are kept."""
        return None

    @abstractmethod
    def components(self) -> dict[str, Stateful]:
        """All state that changes in training, by name, for checkpoints. State is loaded in this order."""

    def held(self) -> Tensor:
        """(n,) nodes of the stored images."""
        return torch.empty(0, dtype=torch.long)

    def matrices(self) -> dict[str, Tensor]:
        """Matrices to show in a report, by name."""
        return {}

    def reader(self, lagging: bool = False) -> Self:
        """A copy for prediction, unaffected by further training. Its backbones are at rest.

        Args:
            lagging: it may lag behind as `foresee` does.
        """
        memo = {id(part): part for part in self.components().values() if getattr(part, "training_only", False)}
        twin = copy.deepcopy(self, memo)
        for copied in list(memo.values()):
            if isinstance(copied, Backbone):
                copied.rest()
        return twin

    def state_dict(self) -> dict[str, Any]:
        return {name: component.state_dict() for name, component in self.components().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, component in self.components().items():
            component.load_state_dict(state[name])
