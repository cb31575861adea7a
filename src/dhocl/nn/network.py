"""The trainable backbone f with its linear heads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.nn.backbones import Backbone
from dhocl.nn.heads.linear import LinearHeads
from dhocl.nn.learner import Setup, TrainSettings
from dhocl.nn.optim import Optimizer


class Output(NamedTuple):
    logits: dict[int, Tensor]  # (B, classes) per level, coarsest first
    features: Tensor  # (B, d)
    map: Tensor  # (B, c, h, w); without channels if the network returns no maps

    def rows(self, start: int, end: int) -> Output:
        logits = {level: z[start:end] for level, z in self.logits.items()}
        return Output(logits, self.features[start:end], self.map[start:end])

    def by_node(self, taxonomy: Taxonomy) -> Tensor:
        """The logits (B, nodes). New nodes come last, whatever their level: store logits in this form."""
        nodes = torch.cat([taxonomy.nodes(level) for level in self.logits])
        return torch.cat(list(self.logits.values()), 1)[:, nodes.argsort()]

    def split(self, sizes: Sequence[int]) -> list[Output]:
        """The output of each of several batches that were concatenated, by their sizes."""
        return [self.rows(start, end) for start, end in pairwise(accumulate(sizes, initial=0))]


def without_map(f: Backbone, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """(B, 3, H, W) -> features (B, d), and a map (B, 0, 1, 1)."""
    features = f.features(pixels)
    return features, features[:, :0, None, None]


class Network:
    """f with a linear head per level. The backbone of the set-up becomes f and is trained in place.

    Args:
        setup: with the backbone.
        settings: learning rates.
        maps: whether outputs have feature maps.
    """

    def __init__(self, setup: Setup, settings: TrainSettings, maps: bool = False) -> None:
        if not setup.backbone.takes_images:
            raise InputError(
                "this method trains a network on images, and can not learn from feature vectors: use one on frozen "
                "features, such as amber, acil, ncm, slda or ranpac"
            )
        self.f: Backbone = setup.backbone.eval()  # also in training: no dropout, no batch statistics
        self._maps = maps
        self.optimizer = Optimizer(settings.weight_decay, self.f.device)
        self.optimizer.add(((f"f.{name}", p) for name, p in self.f.named_parameters()), settings.lr_backbone)
        self._rng = Rng(setup.seed, "heads")
        self.heads = LinearHeads(self.f.dim, self.optimizer, settings.lr_heads, self._rng)

    def __call__(self, pixels: Tensor) -> Output:
        """(B, 3, H, W) -> output of f and of the heads."""
        features, feature_map = self.f(pixels) if self._maps else without_map(self.f, pixels)
        return Output(self.heads(features), features, feature_map)

    @property
    def device(self) -> torch.device:
        return self.f.device

    def targets(self, y: Tensor, taxonomy: Taxonomy) -> Tensor:
        """(B,) nodes -> (B, levels) columns, -1 where unknown, where the outputs are."""
        return taxonomy.complete(y).to(self.device)

    def each(self, batches: Sequence[Tensor]) -> list[Output]:
        """The outputs of several batches, in one forward pass."""
        return self(torch.cat(list(batches))).split([len(batch) for batch in batches])

    @torch.no_grad()
    def predict(self, pixels: Tensor) -> dict[int, Tensor]:
        """Probabilities (B, classes) per level."""
        return {level: z.softmax(1) for level, z in self(pixels).logits.items()}

    def grow(self, taxonomy: Taxonomy) -> None:
        self.heads.grow(taxonomy)

    def step(self, loss: Tensor) -> None:
        if not torch.isfinite(loss):
            raise InputError(
                f"the loss became {loss.item()}: training diverged; lower the learning rates (`settings` lr_...)"
            )
        self.optimizer.step(loss)

    def state_dict(self) -> dict[str, Any]:
        return {
            "f": self.f.state_dict(),
            "heads": self.heads.state_dict(),
            "rng": self._rng.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.f.load_state_dict(state["f"])
        self.heads.load_state_dict(state["heads"])
        self._rng.load_state_dict(state["rng"])
