"""Learning without forgetting (Li and Hoiem 2016), with a reservoir: distillation from a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.learner import Batch, PeriodicSettings, Setup, Stateful
from dhocl.nn.snapshot import Snapshot


@dataclass(frozen=True)
class LwfSettings(ReplaySettings, PeriodicSettings):
    distillation: float = 1.0
    temperature: float = 2.0

    positive = frozenset({"temperature"})


def distillation(student: dict[int, Tensor], teacher: dict[int, Tensor], temperature: float) -> Tensor:
    """T² CE(softmax(z_old / T), softmax(z_new / T)) over the teacher's classes, mean over its levels.

    Logits (B, classes) per level. Levels with fewer than two old classes are skipped.
    """
    terms = [next(iter(student.values())).new_zeros(())]
    for level, old in teacher.items():
        if old.shape[1] > 1:
            log_p = (student[level][:, : old.shape[1]] / temperature).log_softmax(1)
            terms.append(-(temperature**2) * ((old / temperature).softmax(1) * log_p).sum(1).mean())
    return torch.stack(terms).sum() / max(1, len(terms) - 1)


class LwF(ER):
    """Distillation needs no labels, so it covers every image and every level of the teacher."""

    settings: LwfSettings

    def __init__(self, setup: Setup, settings: LwfSettings) -> None:
        super().__init__(setup, settings)
        self.teacher = Snapshot(self.net)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        if self.settings.due(self.setup, self.memory.seen, len(batch.y)):
            self.teacher.take()
        return stats

    def loss(self, batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        batches = self.augmented(batches)
        outputs = self.outputs(batches)
        total = self.objectives(outputs, batches, taxonomy)
        if self.teacher.taken and self.settings.distillation:
            for batch, output in zip(batches, outputs, strict=True):
                known = self.teacher(batch.x).logits
                total = total + self.settings.distillation * distillation(
                    output.logits, known, self.settings.temperature
                )
        return total

    def components(self) -> dict[str, Stateful]:
        return {"teacher": self.teacher, **super().components()}
