"""Supervised contrastive losses, flat (Khosla et al. 2020) and over the levels of a tree (HCon, Zhang et al. 2022)."""

from __future__ import annotations

import torch
from torch import Tensor

from dhocl.core.taxonomy import UNKNOWN


def supcon(features: Tensor, columns: Tensor, temperature: float = 0.1) -> Tensor:
    """Mean over anchors of -mean over positives of log softmax over all others: unit features (N, D), classes (N,).

    Rows without a class and anchors without a positive are ignored. Without any anchor the loss is 0.
    """
    rows = columns != UNKNOWN
    features, columns = features[rows], columns[rows]
    itself = torch.eye(len(columns), dtype=torch.bool, device=columns.device)
    positive = (columns[:, None] == columns[None, :]) & ~itself
    anchors = positive.any(1)
    if not anchors.any():
        return features.new_zeros(())
    similarity = (features @ features.t() / temperature).masked_fill(itself, -torch.inf)
    log_p = (similarity.log_softmax(1))[anchors]
    positive = positive[anchors]
    return -(log_p.masked_fill(~positive, 0).sum(1) / positive.sum(1)).mean()


def hcon(features: Tensor, targets: Tensor, temperature: float = 0.1) -> Tensor:
    """HMCE: Σ over levels, the finest first (l = 1), of 2^(1/l) max(ℓ_l, ℓ of any finer level), over levels + 1.

    features (N, D) of unit length, both views of each image; targets (N, levels). Two images of the same class at a
    level are positives. Images without a class at a level are neither positives nor negatives there.
    """
    total, finer = features.new_zeros(()), features.new_zeros(())
    levels = targets.shape[1]
    for order, place in enumerate(reversed(range(levels)), 1):
        finer = torch.maximum(finer, supcon(features, targets[:, place], temperature))
        total = total + 2 ** (1 / order) * finer
    return total / (levels + 1)
