"""Nearest class mean: an image shows the class whose mean feature is most similar."""

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from dhocl.core.settings import Settings
from dhocl.core.taxonomy import Taxonomy
from dhocl.nn.backbones import frozen
from dhocl.nn.learner import Batch, Learner, Setup, Stateful


@dataclass(frozen=True)
class MeanSettings(Settings):
    sharpness: float = 20.0


class Sums:
    """The sum of the features of each class, (classes, dim) per level: the part of the learner that changes."""

    def __init__(self, dim: int, device: torch.device) -> None:
        self.device = device
        self.levels: dict[int, Tensor] = defaultdict(lambda: torch.zeros(0, dim, device=device))

    def grow(self, taxonomy: Taxonomy) -> None:
        for level, width in taxonomy.widths.items():
            old = self.levels[level]
            self.levels[level] = torch.cat([old, old.new_zeros(width - len(old), old.shape[1])])

    def state_dict(self) -> dict[str, Tensor]:
        return {str(level): sums for level, sums in self.levels.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.levels.update({int(level): sums.to(self.device) for level, sums in state.items()})


class NearestMean(Learner):
    """Nearest class mean on frozen features."""

    def __init__(self, setup: Setup, settings: MeanSettings) -> None:
        self.f0 = frozen(setup.backbone)
        self.sharpness = settings.sharpness
        self.sums = Sums(self.f0.dim, self.f0.device)

    @torch.no_grad()
    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.sums.grow(taxonomy)
        features = self.f0.features(batch.x)  # where the backbone is: perhaps on a GPU
        columns = taxonomy.complete(batch.y).to(features.device)  # (b, levels), -1 where a class is not known
        for level, column in zip(taxonomy.levels, columns.T, strict=True):
            known = column >= 0
            self.sums.levels[level].index_add_(0, column[known], features[known])
        return {}

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        features = self.f0.features(x)
        return {
            level: (self.sharpness * cosine_similarity(features[:, None], sums[None], dim=2)).softmax(1)
            for level, sums in sorted(self.sums.levels.items())
        }

    def components(self) -> dict[str, Stateful]:
        return {"sums": self.sums}
