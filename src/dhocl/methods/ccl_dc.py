"""CCL-DC, collaborative continual learning (Wang et al. 2024): two networks distil each other on harder views."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.augment import rand_augment, resized_crop
from dhocl.nn.learner import Batch, Needs, Setup, Stateful
from dhocl.nn.network import Network, Output

Views = Sequence[Sequence[Output]]  # [view][batch]: the plain view first, then the chain


@dataclass(frozen=True)
class CclDcSettings(ReplaySettings):
    """`views` is the length of the chain. A step costs 2 (1 + views) steps of plain replay: 10 for the full chain."""

    lr_backbone: float = 1e-5
    loss: Literal["multi_ce", "hxe", "soft_ce", "haf"] = "multi_ce"  # not hcon: it makes its own views
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
    """Distillation chain: the teacher of each view is the peer's output for the next harder view.

    The teacher of the hardest view is the peer's output for the same view. The plain view is not distilled. Sum over
    views and batches; each term is a mean over rows.
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
    """CCL-DC on top of plain replay; the benchmark's paper does not state the base method.

    Both networks start from the same pretrained backbone. They differ in the initial weights of their heads and, unlike
    in the original, in the augmentation of the plain view. Distillation needs no labels, so it covers every level and
    class. Training starts with the first batch; the original waits until the memory has items.
    """

    settings: CclDcSettings

    def __init__(self, setup: Setup, settings: CclDcSettings) -> None:
        twin = setup._replace(backbone=copy.deepcopy(setup.backbone), seed=int(Rng(setup.seed, "peer").integers(2**32)))
        super().__init__(setup, settings)
        self.peer = Network(twin, settings)

    def needs(self, batch: int, samples: int) -> Needs:
        plain = super().needs(batch, samples)
        return plain._replace(trained=2 * (1 + self.settings.views) * plain.trained)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.follow(taxonomy)
        terms = self.losses([batch, *self.replay(batch, taxonomy)], taxonomy)
        for net, (ce, kl) in zip((self.net, self.peer), terms, strict=True):
            net.step(0.5 * ce + self.settings.distillation * kl)
        self.memory.insert(x=batch.x, y=batch.y)
        return {
            "loss.ce": sum(ce.item() for ce, _ in terms) / 2,
            "loss.distillation": sum(kl.item() for _, kl in terms) / 2,
        }

    def follow(self, taxonomy: Taxonomy) -> None:
        super().follow(taxonomy)
        self.peer.grow(taxonomy)

    def losses(self, batches: Sequence[Batch], taxonomy: Taxonomy) -> list[tuple[Tensor, Tensor]]:
        """(cross-entropy, divergence) of both networks, computed before either takes its step."""
        chains = zip(*(self.chain(batch.x.to(self.net.device)) for batch in batches), strict=True)
        hard = [view for views in chains for view in views]  # views in order, the batches in order in each
        both = [self.view_outputs(net, hard, batches) for net in (self.net, self.peer)]
        return [
            (
                torch.stack([self.objectives(view, batches, taxonomy) for view in own]).sum(),
                chain_divergence(own, peer, self.settings.temperature),
            )
            for own, peer in (both, both[::-1])
        ]

    def view_outputs(self, net: Network, hard: Sequence[Tensor], batches: Sequence[Batch]) -> Views:
        outputs = net.each([*(batch.x for batch in self.augmented(batches)), *hard])
        return [outputs[start : start + len(batches)] for start in range(0, len(outputs), len(batches))]

    def chain(self, x: Tensor) -> list[Tensor]:
        """The original image, a crop of it, RandAugment of the crop, RandAugment of that: (n, 3, H, W) each."""
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

    def components(self) -> dict[str, Stateful]:
        return {"peer": self.peer, "peer_optimizer": self.peer.optimizer, **super().components()}
