"""Experience replay with a reservoir (Rolnick et al. 2019; Chaudhry et al. 2019): the paper's RS (HAF)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dhocl.augment import augment_each
from dhocl.learner import Batch, Learner, Part, Setup, TrainSettings
from dhocl.losses import Average
from dhocl.memory import Memory, Reservoir
from dhocl.network import Network, Output
from dhocl.objectives import LossName, make_objective
from dhocl.rng import Rng
from dhocl.taxonomy import Taxonomy


@dataclass(frozen=True)
class ReplaySettings(TrainSettings):
    loss: LossName = "haf"
    average: Average = "level"  # of the loss of each level: over its labelled rows, or over all rows of the batch


class ER(Learner):
    """One step a batch on the stream and a replay batch together. What a variant changes is a method of its own."""

    def __init__(self, setup: Setup, settings: ReplaySettings) -> None:
        self.setup = setup
        self.rng = Rng(setup.seed, "learner")
        self.net = Network(setup, settings)
        self.objective = make_objective(settings.loss, self.net, settings.lr_heads, setup.seed, settings.average)
        self.memory = self.make_memory()

    def make_memory(self) -> Memory:
        return Reservoir(self.setup.buffer, self.rng)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.net.grow(taxonomy)
        self.memory.follow(taxonomy)
        loss = self.loss([batch, *self.replay(batch, taxonomy)], taxonomy)
        self.net.step(loss)
        self.memory.insert(x=batch.x, y=batch.y)
        return {"loss": loss.item()}

    def replay(self, batch: Batch, taxonomy: Taxonomy) -> list[Batch]:
        """The batch to rehearse beside the stream's; none while there is nothing to rehearse."""
        items = self.memory.sample(self.setup.replay_batch)
        return [Batch(items["x"], items["y"])] if items else []

    def loss(self, batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        return self.objectives(self.outputs(batches), batches, taxonomy)

    def epoch(self, b: int, taxonomy: Taxonomy) -> None:
        """One pass over the memory, b at a time, in random order."""
        order = self.rng.permutation(self.memory.size)
        for start in range(0, len(order), b):
            items = self.memory.read(order[start : start + b])
            self.net.step(self.loss([Batch(items["x"], items["y"])], taxonomy))

    def outputs(self, batches: Sequence[Batch]) -> list[Output]:
        views = self.augmented(*(batch.x for batch in batches))
        return self.net(views).split([self.objective.views * len(batch.y) for batch in batches])

    def objectives(self, outputs: Sequence[Output], batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        """The sum over the batches, each a mean over its own rows."""
        terms = [
            self.objective(output, taxonomy.complete(batch.y), taxonomy)
            for output, batch in zip(outputs, batches, strict=True)
        ]
        return torch.stack(terms).sum()

    def augmented(self, *batches: Tensor) -> Tensor:
        """As many views of each batch as the loss wants, one after the other."""
        return augment_each([x for x in batches for _ in range(self.objective.views)], self.rng, self.setup.flip)

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        return self.objective.probabilities(self.net(x).logits)

    def held(self) -> Tensor:
        return self.memory.nodes

    def parts(self) -> dict[str, Part]:
        return {
            "rng": self.rng,
            "net": self.net,
            "objective": self.objective,
            "memory": self.memory,
            "optimizer": self.net.optimizer,  # last: it needs the parameters that the others make
        }
