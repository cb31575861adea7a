"""Learning without forgetting (Li and Hoiem 2016), with a reservoir: distil an earlier copy of the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dhocl.learner import Batch, Part, PeriodicSettings, Setup
from dhocl.methods.er import ER, ReplaySettings
from dhocl.snapshot import Snapshot
from dhocl.taxonomy import Taxonomy


@dataclass(frozen=True)
class LwfSettings(ReplaySettings, PeriodicSettings):
    distillation: float = 1.0
    temperature: float = 2.0

    positive = frozenset({"temperature"})


def distillation(student: dict[int, Tensor], teacher: dict[int, Tensor], temperature: float) -> Tensor:
    """T² CE(softmax(z_old / T), softmax(z_new / T)) over the classes that the teacher knows, mean over its levels.

    Logits (B, classes) per level; a level with fewer than two old classes has nothing to tell.
    """
    terms = [torch.zeros(())]
    for level, old in teacher.items():
        if old.shape[1] > 1:
            log_p = (student[level][:, : old.shape[1]] / temperature).log_softmax(1)
            terms.append(-(temperature**2) * ((old / temperature).softmax(1) * log_p).sum(1).mean())
    return torch.stack(terms).sum() / max(1, len(terms) - 1)


class LwF(ER):
    """Needs no label, so every image is distilled at every level the teacher knows."""

    def __init__(self, setup: Setup, settings: LwfSettings) -> None:
        super().__init__(setup, settings)
        self.settings = settings
        self.teacher = Snapshot(self.net)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        if self.settings.due(self.setup, self.memory.seen, len(batch.y)):
            self.teacher.take()
        return stats

    def loss(self, batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        views = [self.augmented(batch.x) for batch in batches]
        outputs = self.net.each(views)
        total = self.objectives(outputs, batches, taxonomy)
        if self.teacher.taken and self.settings.distillation:
            for x, output in zip(views, outputs, strict=True):
                known = self.teacher(x).logits
                total = total + self.settings.distillation * distillation(
                    output.logits, known, self.settings.temperature
                )
        return total

    def parts(self) -> dict[str, Part]:
        return super().parts() | {"teacher": self.teacher}
