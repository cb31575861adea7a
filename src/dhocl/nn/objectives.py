"""Training objectives: the paper's five hierarchical losses, with their predictions and extra parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.nn.heads.seeded import seeded
from dhocl.nn.losses import Average, Leaves, haf, hcon, hxe, leaf_softmax, leaves, multi_ce, soft_ce
from dhocl.nn.network import Network, Output

LossName = Literal["multi_ce", "hxe", "soft_ce", "haf", "hcon"]


class Objective:
    """A loss on the logits of a batch; predictions are each head's softmax."""

    copies = 1  # augmented copies of each image

    def __init__(self, loss: Callable[[dict[int, Tensor], Tensor, Taxonomy], Tensor]) -> None:
        self._loss = loss

    def __call__(self, output: Output, targets: Tensor, taxonomy: Taxonomy) -> Tensor:
        """The loss; targets (B, levels)."""
        return self._loss(output.logits, targets, taxonomy)

    def follow(self, taxonomy: Taxonomy) -> None:
        """Update what predictions need of the tree; called before each step."""

    def probabilities(self, logits: dict[int, Tensor]) -> dict[int, Tensor]:
        return {level: z.softmax(1) for level, z in logits.items()}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class LeafSoftmax(Objective):
    """HXE: one softmax over the leaves. Predictions sum it along the tree of the last step."""

    def __init__(self, average: Average) -> None:
        super().__init__(partial(hxe, average=average))
        self._leaves = Leaves(torch.empty(0, dtype=torch.long), torch.empty((0, 0), dtype=torch.long))

    def follow(self, taxonomy: Taxonomy) -> None:
        self._leaves = leaves(taxonomy)

    def probabilities(self, logits: dict[int, Tensor]) -> dict[int, Tensor]:
        return leaf_softmax(logits, self._leaves)

    def state_dict(self) -> dict[str, Any]:
        return self._leaves._asdict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._leaves = Leaves(**state)


class Contrastive(Objective):
    """Multi-CE + 0.1 HCon on a projection of the features (two layers, 128 outputs), with two views of each image."""

    copies = 2
    weight = 0.1

    def __init__(self, net: Network, lr: float, seed: int, average: Average) -> None:
        super().__init__(lambda logits, targets, _: multi_ce(logits, targets, average))
        self.projection = seeded(
            nn.Sequential(nn.Linear(net.f.dim, net.f.dim), nn.ReLU(), nn.Linear(net.f.dim, 128)),
            Rng(seed, "projection"),
        ).to(net.device)
        net.optimizer.add(((f"projection.{name}", p) for name, p in self.projection.named_parameters()), lr)

    def __call__(self, output: Output, targets: Tensor, taxonomy: Taxonomy) -> Tensor:
        unit = F.normalize(self.projection(output.features))
        return super().__call__(output, targets, taxonomy) + self.weight * hcon(unit, targets)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.projection.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.projection.load_state_dict(state)


def make_objective(name: LossName, net: Network, lr: float, seed: int, average: Average = "level") -> Objective:
    if name == "hxe":
        return LeafSoftmax(average)
    if name == "hcon":
        return Contrastive(net, lr, seed, average)
    losses: dict[str, Callable[[dict[int, Tensor], Tensor, Taxonomy], Tensor]] = {
        "multi_ce": lambda logits, targets, _: multi_ce(logits, targets, average),
        "soft_ce": partial(soft_ce, average=average),
        "haf": partial(haf, average=average),
    }
    return Objective(losses[name])
