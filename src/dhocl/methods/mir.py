"""Maximally interfered retrieval (Aljundi et al. 2019): replay items whose loss the next step would raise most."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.learner import Batch
from dhocl.nn.losses import given_nll


@dataclass(frozen=True)
class MirSettings(ReplaySettings):
    candidates: int = 50
    virtual_lr: float = 1e-3  # of the virtual gradient step


class MIR(ER):
    """Replays the random candidates whose loss a virtual gradient step on the stream batch raises most."""

    settings: MirSettings

    def replay(self, batch: Batch, taxonomy: Taxonomy) -> list[Batch]:
        items = self.memory.sample(self.settings.candidates)
        if not items or not self.setup.replay_batch:
            return []
        candidates = Batch(items["x"], items["y"])
        if len(candidates.y) > self.setup.replay_batch:
            top = self.interference(batch, candidates, taxonomy).topk(self.setup.replay_batch).indices.cpu()
            candidates = Batch(candidates.x[top], candidates.y[top])
        return [candidates]

    def interference(self, batch: Batch, candidates: Batch, taxonomy: Taxonomy) -> Tensor:
        """(candidates,) increase of the loss of each after the step θ - lr ∇ of the stream loss."""
        parameters = self.net.optimizer.parameters()
        loss = self.loss([batch], taxonomy)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        before = given_nll(self.predict(candidates.x), candidates.y, taxonomy)
        with torch.no_grad():
            kept = [p.clone() for p in parameters]
            for p, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    p.sub_(gradient, alpha=self.settings.virtual_lr)
            after = given_nll(self.predict(candidates.x), candidates.y, taxonomy)
            for p, value in zip(parameters, kept, strict=True):
                p.copy_(value)
        return after - before
