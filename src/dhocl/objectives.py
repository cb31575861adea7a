"""What a network is trained by: one of the paper's five hierarchical losses, with what it needs beside the heads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.heads.seeded import seeded
from dhocl.losses import chained, haf, hcon, hxe, multi_ce, soft_ce
from dhocl.network import Network, Output
from dhocl.rng import Rng
from dhocl.taxonomy import Taxonomy

LossName = Literal["multi_ce", "hxe", "soft_ce", "haf", "hcon"]


class Objective:
    """A loss on the logits of a batch; predictions are each head's softmax."""

    views = 1  # augmentations of each image that it wants, one after the other in the batch

    def __init__(self, loss: Callable[[dict[int, Tensor], Tensor, Taxonomy], Tensor]) -> None:
        self._loss = loss

    def __call__(self, output: Output, targets: Tensor, taxonomy: Taxonomy) -> Tensor:
        """targets (b, levels), for output rows of b images, or of `views` times b."""
        return self._loss(output.logits, targets, taxonomy)

    def probabilities(self, logits: dict[int, Tensor]) -> dict[int, Tensor]:
        return {level: z.softmax(1) for level, z in logits.items()}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Conditional(Objective):
    """HXE trains each head to tell siblings apart, so its predictions are chained down the tree last learned with."""

    def __init__(self) -> None:
        super().__init__(hxe)
        self._parents: dict[int, Tensor] = {}
        self._nodes: dict[int, Tensor] = {}

    def __call__(self, output: Output, targets: Tensor, taxonomy: Taxonomy) -> Tensor:
        self._parents = {level: taxonomy.parent_nodes(level) for level in taxonomy.levels}
        self._nodes = {level: taxonomy.nodes(level).clone() for level in taxonomy.levels}
        return super().__call__(output, targets, taxonomy)

    def probabilities(self, logits: dict[int, Tensor]) -> dict[int, Tensor]:
        return chained(logits, self._parents, self._nodes)

    def state_dict(self) -> dict[str, Any]:
        return {
            str(level): {"parents": parents, "nodes": self._nodes[level]} for level, parents in self._parents.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._parents = {int(level): tensors["parents"].clone() for level, tensors in state.items()}
        self._nodes = {int(level): tensors["nodes"].clone() for level, tensors in state.items()}


class Contrastive(Objective):
    """Multi-CE and 0.1 HCon on a projection of the features (two layers to 128), over two views of each image."""

    views = 2
    weight = 0.1

    def __init__(self, net: Network, lr: float, seed: int) -> None:
        super().__init__(lambda logits, targets, _: multi_ce(logits, targets))
        self.projection = seeded(
            nn.Sequential(nn.Linear(net.f.dim, net.f.dim), nn.ReLU(), nn.Linear(net.f.dim, 128)),
            Rng(seed, "projection"),
        )
        net.optimizer.add(((f"projection.{name}", p) for name, p in self.projection.named_parameters()), lr)

    def __call__(self, output: Output, targets: Tensor, taxonomy: Taxonomy) -> Tensor:
        targets = targets.repeat(self.views, 1)
        unit = F.normalize(self.projection(output.features))
        return super().__call__(output, targets, taxonomy) + self.weight * hcon(unit, targets)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.projection.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.projection.load_state_dict(state)


def make_objective(name: LossName, net: Network, lr: float, seed: int) -> Objective:
    if name == "hxe":
        return Conditional()
    if name == "hcon":
        return Contrastive(net, lr, seed)
    losses: dict[str, Callable[[dict[int, Tensor], Tensor, Taxonomy], Tensor]] = {
        "multi_ce": lambda logits, targets, _: multi_ce(logits, targets),
        "soft_ce": partial(soft_ce, beta=5.0),
        "haf": haf,
    }
    return Objective(losses[name])
