"""ER-ACE (Caccia et al. 2022): asymmetric cross-entropy, a softmax over the present classes on the stream."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER
from dhocl.nn.learner import Batch
from dhocl.nn.losses import multi_ce
from dhocl.nn.network import Output


def present_only(logits: dict[int, Tensor], targets: Tensor) -> dict[int, Tensor]:
    """Logits (B, classes) per level, with -inf for classes that are not in targets (B, levels)."""
    masked = {}
    for place, (level, z) in enumerate(logits.items()):
        absent = ~torch.isin(torch.arange(z.shape[1], device=z.device), targets[:, place])
        masked[level] = z.masked_fill(absent, -torch.inf)
    return masked


class ERACE(ER):
    """Stream batches: cross-entropy over the present classes only, which does not lower the logits of old classes.

    Replay batches: the loss of the settings, over all classes.
    """

    def objectives(self, outputs: Sequence[Output], batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        targets = self.net.targets(batches[0].y, taxonomy)
        stream = multi_ce(present_only(outputs[0].logits, targets), targets, self.settings.average)
        return stream + super().objectives(outputs[1:], batches[1:], taxonomy)
