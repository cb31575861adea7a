"""EWC++ (Kirkpatrick et al. 2017; Chaudhry et al. 2018), with a reservoir: hold the weights that mattered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dhocl.learner import Batch, Part, PeriodicSettings, Setup
from dhocl.methods.er import ER, ReplaySettings
from dhocl.taxonomy import Taxonomy


@dataclass(frozen=True)
class EwcSettings(ReplaySettings, PeriodicSettings):
    penalty: float = 1e4
    fisher_rate: float = 0.5


class Consolidation:
    """A running diagonal Fisher F of the backbone, and the weights θ* and F of the last consolidation.

    F ← (1-α) F + α g², g the gradient of the loss of a batch without the penalty. A penalty inside would raise F, which
    raises the penalty, until the loss overflows. The heads are left free: their classes come and go.
    """

    def __init__(self, module: nn.Module, settings: EwcSettings) -> None:
        self._module = module
        self._settings = settings
        self.fisher: dict[str, Tensor] = {}
        self.held: dict[str, dict[str, Tensor]] = {}  # name -> θ*, F
        self._pull: dict[str, Tensor] = {}  # name -> gradient of the penalty computed last

    def penalty(self) -> Tensor:
        """λ Σ F (θ - θ*)², 0 before the first consolidation."""
        terms = [torch.zeros(())]
        for name, p in self._module.named_parameters():
            if name in self.held:
                moved, fisher = p - self.held[name]["value"], self.held[name]["fisher"]
                terms.append(self._settings.penalty * (fisher * moved.square()).sum())
                self._pull[name] = 2 * self._settings.penalty * fisher * moved.detach()
        return torch.stack(terms).sum()

    @torch.no_grad()
    def observe(self) -> None:
        """After a backward of a loss and the penalty: take the gradients of the loss into F."""
        for name, p in self._module.named_parameters():
            if p.grad is not None:
                square = (p.grad - self._pull.get(name, 0.0)).square()
                rate = self._settings.fisher_rate
                self.fisher[name] = (
                    self.fisher[name].mul_(1 - rate).add_(square, alpha=rate) if name in self.fisher else square
                )

    def hold(self) -> None:
        """From now on it is these weights that are held, as much as they have mattered."""
        self.held = {
            name: {"value": p.detach().clone(), "fisher": self.fisher[name].clone()}
            for name, p in self._module.named_parameters()
            if name in self.fisher
        }

    def state_dict(self) -> dict[str, Any]:
        return {"fisher": dict(self.fisher), "held": self.held}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        own = {name: torch.zeros_like(p) for name, p in self._module.named_parameters()}
        self.fisher = {name: own[name].clone().copy_(value) for name, value in state["fisher"].items()}
        self.held = {
            name: {key: own[name].clone().copy_(value) for key, value in tensors.items()}
            for name, tensors in state["held"].items()
        }


class EWC(ER):
    def __init__(self, setup: Setup, settings: EwcSettings) -> None:
        super().__init__(setup, settings)
        self.settings = settings
        self.consolidation = Consolidation(self.net.f, settings)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        self.consolidation.observe()
        if self.settings.due(self.setup, self.memory.seen, len(batch.y)):
            self.consolidation.hold()
        return stats

    def loss(self, batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        return super().loss(batches, taxonomy) + self.consolidation.penalty()

    def parts(self) -> dict[str, Part]:
        return super().parts() | {"consolidation": self.consolidation}
