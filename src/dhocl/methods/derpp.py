"""DER++, dark experience replay (Buzzega et al. 2020): replay labels and stored logits."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch, Needs


@dataclass(frozen=True)
class DerppSettings(ReplaySettings):
    alpha: float = 0.5  # weight of the stored logits
    beta: float = 1.0  # weight of the replayed labels


def logit_error(now: Tensor, stored: Tensor) -> Tensor:
    """Mean (z - z_stored)² over the classes known when the item was stored: (r, nodes), (r, nodes then)."""
    return (now[:, : stored.shape[1]] - stored)[~stored.isnan()].square().mean()


class DERpp(ER):
    """Each step uses two replay batches: one for the stored logits, one for the labels."""

    settings: DerppSettings

    def needs(self, batch: int, samples: int) -> Needs:
        plain = super().needs(batch, samples)
        return plain._replace(trained=plain.trained + self.setup.replay_batch)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.follow(taxonomy)
        stored = self.memory.sample(self.setup.replay_batch)
        batches = self.augmented([batch, *self.replay(batch, taxonomy)])
        dark = [augment(stored["x"].to(self.net.device), self.rng, self.setup.flip)] if stored else []
        own, *again = self.net.each([*(one.x for one in batches), *dark])
        loss = self.objectives([own], batches[:1], taxonomy)
        loss = loss + self.settings.beta * self.objectives(again[:1], batches[1:], taxonomy)
        if stored:
            before = stored["logits"].to(self.net.device)
            loss = loss + self.settings.alpha * logit_error(again[1].by_node(taxonomy), before)
        self.net.step(loss)
        self.memory.insert(x=batch.x, y=batch.y, logits=own.rows(0, len(batch.y)).by_node(taxonomy))
        return {"loss": loss.item()}
