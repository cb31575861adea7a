"""CCL-DC, collaborative continual learning (Wang et al. 2024): two networks learn from each other's harder views."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.errors import InputError
from dhocl.learner import Batch, Part, Setup
from dhocl.methods.er import ER, ReplaySettings
from dhocl.network import Network, Output
from dhocl.objectives import LossName
from dhocl.rng import Rng
from dhocl.taxonomy import Taxonomy
from dhocl.views import rand_augment, resized_crop

Views = Sequence[Sequence[Output]]  # by view, the plain one first, then the chain; by batch


@dataclass(frozen=True)
class CclDcSettings(ReplaySettings):
    """`views` is the length of the chain: a step costs 2 (1 + views) steps of plain replay, 10 for the whole chain."""

    loss: LossName = "multi_ce"
    distillation: float = 2.0
    temperature: float = 4.0
    views: Literal[1, 2, 3, 4] = 4

    positive = frozenset({"temperature"})


def divergence(student: dict[int, Tensor], teacher: dict[int, Tensor], temperature: float) -> Tensor:
    """T² KL(softmax(z_teacher / T) ‖ softmax(z_student / T)), mean over images and levels; logits (n, classes)."""
    terms = [
        F.kl_div((z / temperature).log_softmax(1), (teacher[level].detach() / temperature).softmax(1), reduction="none")
        for level, z in student.items()
    ]
    return temperature**2 * torch.stack([term.sum(1).mean() for term in terms]).mean()


def chain_divergence(own: Views, peer: Views, temperature: float) -> Tensor:
    """The distillation chain: each view learns what the peer says of the next harder one, the hardest of itself.

    The plain view takes no part. As everywhere, each batch counts by the mean over its rows.
    """
    hardest = len(own) - 1
    links = [*pairwise(range(1, len(own))), (hardest, hardest)]
    terms = [
        divergence(student.logits, teacher.logits, temperature)
        for easy, hard in links
        for student, teacher in zip(own[easy], peer[hard], strict=True)
    ]
    return torch.stack(terms).sum()


class CCLDC(ER):
    """Plain replay as the method that is wrapped; the paper of the benchmark does not say which it wraps.

    The peers start from the same pretrained backbone, so what sets them apart are the first weights of their heads and,
    unlike in the original, a plain augmentation of its own for each. Distillation needs no label and so covers every
    level and class. Networks train from the first batch on; the original waits until there is something to replay.
    """

    def __init__(self, setup: Setup, settings: CclDcSettings) -> None:
        if settings.loss == "hcon":
            raise InputError("ccl_dc has views of its own: --set loss= one of multi_ce, hxe, soft_ce, haf")
        twin = setup._replace(backbone=copy.deepcopy(setup.backbone), seed=int(Rng(setup.seed, "peer").integers(2**32)))
        super().__init__(setup, settings)
        self.settings = settings
        self.peer = Network(twin, settings)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        for net in (self.net, self.peer):
            net.grow(taxonomy)
        self.memory.follow(taxonomy)
        terms = self.losses([batch, *self.replay(batch, taxonomy)], taxonomy)
        for net, (ce, kl) in zip((self.net, self.peer), terms, strict=True):
            net.step(0.5 * ce + self.settings.distillation * kl)
        self.memory.insert(x=batch.x, y=batch.y)
        return {
            "loss.ce": sum(ce.item() for ce, _ in terms) / 2,
            "loss.distillation": sum(kl.item() for _, kl in terms) / 2,
        }

    def losses(self, batches: Sequence[Batch], taxonomy: Taxonomy) -> list[tuple[Tensor, Tensor]]:
        """Cross-entropy and divergence of either network, all from before the first of them takes its step."""
        chains = zip(*(self.chain(batch.x) for batch in batches), strict=True)
        hard = [view for views in chains for view in views]  # view after view, each batch after batch
        both = [self.view_outputs(net, hard, batches) for net in (self.net, self.peer)]
        return [
            (
                torch.stack([self.objectives(view, batches, taxonomy) for view in own]).sum(),
                chain_divergence(own, peer, self.settings.temperature),
            )
            for own, peer in (both, both[::-1])
        ]

    def view_outputs(self, net: Network, hard: Sequence[Tensor], batches: Sequence[Batch]) -> Views:
        outputs = net.each([*(self.augmented(batch.x) for batch in batches), *hard])
        return [outputs[start : start + len(batches)] for start in range(0, len(outputs), len(batches))]

    def chain(self, x: Tensor) -> list[Tensor]:
        """The image as it arrived, a crop of it, RandAugment of that, and RandAugment of that: (n, 3, H, W) each."""
        views = [x]
        if self.settings.views > 1:
            views.append(resized_crop(x, self.rng, self.setup.flip, (0.6, 1.0)))
        while len(views) < self.settings.views:
            views.append(rand_augment(views[-1], self.rng))
        return views

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        own, peer = self.net(x).logits, self.peer(x).logits
        return self.objective.probabilities({level: (z + peer[level]) / 2 for level, z in own.items()})

    def parts(self) -> dict[str, Part]:
        parts = super().parts()
        optimizer = parts.pop("optimizer")
        return parts | {"peer": self.peer, "optimizer": optimizer, "peer_optimizer": self.peer.optimizer}
