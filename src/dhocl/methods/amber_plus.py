"""AMBER on a network that is trained on the start of the stream, then frozen.

While replay trains a copy of the network, AMBER learns with the network as it came. After `start` samples the trained
network is frozen. It takes the place of the other one, and the samples of the start are learned again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from torch import Tensor

from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.amber import Amber, AmberSettings
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.learner import Batch, Learner, Needs, Setup, Stateful, TrainSettings
from dhocl.nn.memory import Everything

BATCH = 32  # images of the start that are learned again at a time, however few came together


@dataclass(frozen=True)
class AmberPlusSettings(AmberSettings, TrainSettings):
    start: int = 1024  # samples on which the network is trained; their images are stored until then

    positive = AmberSettings.positive | {"start"}


class Given(Everything):
    """Also stores the label that each item came with: those of merged classes are forgotten by it."""

    def insert(self, **items: Tensor) -> None:
        super().insert(**items, given=items["y"])


class Starter(ER):
    """Replay from all images of the start."""

    memory: Given

    def make_memory(self) -> Given:
        return Given(self.setup.buffer, self.rng)


class AmberPlus(Learner):
    """Its models can not be merged, as their networks differ. The network does not forget samples."""

    coherent = True

    def __init__(self, setup: Setup, settings: AmberPlusSettings) -> None:
        self.setup = setup  # its backbone is the one that is trained
        self.settings = s = settings
        self.amber = Amber(setup, s)
        training = ReplaySettings(s.lr_backbone, s.lr_heads, s.weight_decay)
        self.starter: Starter | None = Starter(setup._replace(buffer=s.start), training)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = self.amber.learn(batch, taxonomy)
        if self.starter:
            stats |= self.starter.learn(batch, taxonomy)
            if self.starter.memory.seen >= self.settings.start:
                self.amber, self.starter = self._switched(self.starter.memory, taxonomy), None
        return stats

    def _switched(self, memory: Given, taxonomy: Taxonomy) -> Amber:
        """AMBER on the trained network, frozen, that has learned the images of the memory."""
        amber = Amber(self.setup, self.settings)
        for slots in np.split(np.arange(memory.size), range(BATCH, memory.size, BATCH)):
            items = memory.read(slots)
            amber.learn(Batch(items["x"], items["given"]), taxonomy)
        return amber

    def forget(self, batch: Batch, taxonomy: Taxonomy) -> None:
        self.amber.forget(batch, taxonomy)
        if self.starter:
            self.starter.forget(batch, taxonomy)

    def needs(self, batch: int, samples: int) -> Needs:
        stored = min(samples, self.settings.start)
        return Needs(stored, batch + min(stored, self.setup.replay_batch))

    def predict(self, x: Tensor) -> dict[int, Tensor]:
        return self.amber.predict(x)

    def foresee(self, x: Tensor) -> dict[int, Tensor]:
        return self.amber.foresee(x)

    def held(self) -> Tensor:
        return self.starter.held() if self.starter else self.amber.held()

    def reader(self, lagging: bool = False) -> Self:
        twin = type(self).__new__(type(self))
        twin.setup, twin.settings, twin.starter = self.setup, self.settings, None
        twin.amber = self.amber.reader(lagging)
        return twin

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "f0" in state:
            self.setup.backbone.load_state_dict(state["f0"])
            self.amber, self.starter = Amber(self.setup, self.settings), None
        super().load_state_dict(state)

    def components(self) -> dict[str, Stateful]:
        network: dict[str, Stateful] = {"starter": self.starter} if self.starter else {"f0": self.setup.backbone}
        return {"amber": self.amber, **network}
