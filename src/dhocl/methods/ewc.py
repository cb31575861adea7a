"""EWC++ (Kirkpatrick et al. 2017; Chaudhry et al. 2018), with a reservoir: penalises change of important weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.learner import Batch, PeriodicSettings, Setup, Stateful


@dataclass(frozen=True)
class EwcSettings(ReplaySettings, PeriodicSettings):
    penalty: float = 1e4
    fisher_rate: float = 0.5


class Consolidation:
    """Running diagonal Fisher information F of the backbone, and the weights θ* and F of the last consolidation.

    F ← (1-α) F + α g², where g is the gradient of the batch loss without the penalty. With the penalty in g, F and the
    penalty would raise each other until the loss overflows. The heads are not penalised.
    """

    def __init__(self, module: nn.Module, settings: EwcSettings) -> None:
        self._module = module
        self._settings = settings
        self.fisher: dict[str, Tensor] = {}
        self.held: dict[str, dict[str, Tensor]] = {}  # name -> θ*, F
        self._penalty_gradient: dict[str, Tensor] = {}  # name -> gradient of the last penalty

    def penalty(self) -> Tensor:
        """λ Σ F (θ - θ*)², 0 before the first consolidation."""
        terms = [next(self._module.parameters()).new_zeros(())]
        for name, p in self._module.named_parameters():
            if name in self.held:
                moved, fisher = p - self.held[name]["value"], self.held[name]["fisher"]
                terms.append(self._settings.penalty * (fisher * moved.square()).sum())
                self._penalty_gradient[name] = 2 * self._settings.penalty * fisher * moved.detach()
        return torch.stack(terms).sum()

    @torch.no_grad()
    def observe(self) -> None:
        """Update F after the backward pass of loss and penalty."""
        for name, p in self._module.named_parameters():
            if p.grad is not None:
                square = (p.grad - self._penalty_gradient.get(name, 0.0)).square()
                rate = self._settings.fisher_rate
                self.fisher[name] = (
                    self.fisher[name].mul_(1 - rate).add_(square, alpha=rate) if name in self.fisher else square
                )

    def hold(self) -> None:
        """Consolidate: θ* becomes the current weights, with the current F."""
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
    settings: EwcSettings

    def __init__(self, setup: Setup, settings: EwcSettings) -> None:
        super().__init__(setup, settings)
        self.consolidation = Consolidation(self.net.f, settings)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        self.consolidation.observe()
        if self.settings.due(self.setup, self.memory.seen, len(batch.y)):
            self.consolidation.hold()
        return stats

    def loss(self, batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        return super().loss(batches, taxonomy) + self.consolidation.penalty()

    def components(self) -> dict[str, Stateful]:
        return {"consolidation": self.consolidation, **super().components()}
