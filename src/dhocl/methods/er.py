"""Experience replay with a reservoir (Rolnick et al. 2019; Chaudhry et al. 2019): the paper's RS (HAF)."""

from __future__ import annotations

import torch
from torch import Tensor

from dhocl.augment import augment
from dhocl.learner import Batch, Learner, Part, Setup, TrainSettings
from dhocl.losses import haf, rows
from dhocl.memory import Reservoir
from dhocl.network import Network
from dhocl.rng import Rng
from dhocl.taxonomy import Taxonomy


class ER(Learner):
    """One step a batch on the stream and a replay batch together, each under the HAF loss."""

    def __init__(self, setup: Setup, settings: TrainSettings) -> None:
        self.setup = setup
        self.rng = Rng(setup.seed, "learner")
        self.net = Network(setup, settings)
        self.memory = Reservoir(setup.buffer, self.rng)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.net.grow(taxonomy)
        replay = self.memory.sample(self.setup.replay_batch)
        x = torch.cat([batch.x, replay["x"]]) if replay else batch.x
        logits, _ = self.net(augment(x, self.rng, self.setup.flip))
        loss = haf(rows(logits, slice(len(batch.y))), taxonomy.complete(batch.y), taxonomy)
        if replay:
            loss = loss + haf(rows(logits, slice(len(batch.y), None)), taxonomy.complete(replay["y"]), taxonomy)
        self.net.step(loss)
        self.memory.insert(x=batch.x, y=batch.y)
        return {"loss": loss.item()}

    def predict(self, x: Tensor) -> dict[int, Tensor]:
        return self.net.predict(x)

    def parts(self) -> dict[str, Part]:
        return {"rng": self.rng, "net": self.net, "memory": self.memory, "optimizer": self.net.optimizer}
