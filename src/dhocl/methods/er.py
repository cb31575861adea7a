"""Experience replay with a reservoir (Rolnick et al. 2019; Chaudhry et al. 2019): the paper's RS (HAF)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.nn.augment import augment_each
from dhocl.nn.learner import Batch, Learner, Needs, Setup, Stateful, TrainSettings
from dhocl.nn.losses import Average
from dhocl.nn.memory import Memory, Reservoir
from dhocl.nn.network import Network, Output
from dhocl.nn.objectives import LossName, make_objective


@dataclass(frozen=True)
class ReplaySettings(TrainSettings):
    loss: LossName = "haf"
    average: Average = "level"  # loss of a level: mean over its labelled rows; sample: over all rows of the batch


class ER(Learner):
    """One step per batch, on the stream batch and a replay batch together. Variants override single methods."""

    settings: ReplaySettings
    maps = False  # whether outputs have feature maps

    def __init__(self, setup: Setup, settings: ReplaySettings) -> None:
        self.setup = setup
        self.settings = settings
        self.rng = Rng(setup.seed, "learner")
        self.build()
        self.memory = self.make_memory()

    def build(self) -> None:
        """Make a new optimizer, new heads and a new objective, around the backbone as it is."""
        s = self.settings
        self.net = Network(self.setup, s, self.maps)
        self.objective = make_objective(s.loss, self.net, s.lr_heads, self.setup.seed, s.average)

    def make_memory(self) -> Memory:
        return Reservoir(self.setup.buffer, self.rng)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.follow(taxonomy)
        loss = self.loss([batch, *self.replay(batch, taxonomy)], taxonomy)
        self.net.step(loss)
        self.memory.insert(x=batch.x, y=batch.y)
        return {"loss": loss.item()}

    def needs(self, batch: int, samples: int) -> Needs:
        plain = self.setup.replay_needs(batch, samples)
        return plain._replace(trained=self.objective.copies * plain.trained)

    def follow(self, taxonomy: Taxonomy) -> None:
        """Before each step: add heads for new classes, relabel merged classes in the memory, update the objective."""
        self.net.grow(taxonomy)
        self.memory.follow(taxonomy)
        self.objective.follow(taxonomy)

    def replay(self, batch: Batch, taxonomy: Taxonomy) -> list[Batch]:
        """The replay batch; an empty list if the memory is empty."""
        items = self.memory.sample(self.setup.replay_batch)
        return [Batch(items["x"], items["y"])] if items else []

    def loss(self, batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        """Loss of batches, which are augmented here."""
        augmented = self.augmented(batches)
        return self.objectives(self.outputs(augmented), augmented, taxonomy)

    def epoch(self, b: int, taxonomy: Taxonomy) -> None:
        """One pass over the memory in random order, in batches of b."""
        order = self.rng.permutation(self.memory.size)
        for start in range(0, len(order), b):
            items = self.memory.read(order[start : start + b])
            self.net.step(self.loss([Batch(items["x"], items["y"])], taxonomy))

    def augmented(self, batches: Sequence[Batch]) -> list[Batch]:
        """`objective.copies` independently augmented copies of each batch."""
        copies = self.objective.copies
        images = [batch.x.to(self.net.device) for batch in batches]
        x = augment_each([x for x in images for _ in range(copies)], self.rng, self.setup.flip)
        y = [batch.y.repeat(copies) for batch in batches]
        return [Batch(*pair) for pair in zip(torch.split(x, [len(nodes) for nodes in y]), y, strict=True)]

    def outputs(self, batches: Sequence[Batch]) -> list[Output]:
        return self.net.each([batch.x for batch in batches])

    def objectives(self, outputs: Sequence[Output], batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        """Sum over batches of the mean over rows."""
        terms = (
            self.objective(output, self.net.targets(batch.y, taxonomy), taxonomy)
            for output, batch in zip(outputs, batches, strict=True)
        )
        return sum(terms, torch.zeros((), device=self.net.device))

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        return self.objective.probabilities(self.net(x).logits)

    def held(self) -> Tensor:
        return self.memory.nodes

    def components(self) -> dict[str, Stateful]:
        return {
            "rng": self.rng,
            "net": self.net,
            "objective": self.objective,
            "memory": self.memory,
            "optimizer": self.net.optimizer,  # last: it needs the parameters that the others create
        }
