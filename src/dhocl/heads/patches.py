"""How patches of images and prototypes match. Backward passes are by hand: autograd's take twice the operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def class_scores(patches: Tensor, bank: Tensor) -> Tensor:
    """g_(c,j) = max_i cos(M_i, p_cj): unit patches (B, P, k), prototypes of any length (C, J, k) -> (B, C, J)."""
    scores: Tensor = _NearestPatch.apply(patches, bank.flatten(0, 1))  # type: ignore[no-untyped-call]
    return scores.view(len(patches), *bank.shape[:2])


def class_costs(scores: Tensor, columns: Tensor, scale: float, cluster: float, separation: float) -> Tensor:
    """Mean over images of CE + cluster · 2(1 - g of the class) - separation · 2(1 - g of the nearest other class).

    scores (B, C, J) as of `class_scores`, columns (B,) the true class. The logit of a class is the sum of its scores
    times the scale, its g the largest of them; 2(1 - g) is the squared distance of unit vectors.
    """
    costs: Tensor = _ClassCosts.apply(scores, columns, scale, cluster, separation)  # type: ignore[no-untyped-call]
    return costs


def temporal_drift(patches: Tensor, bank: Tensor, cached: Tensor, share: float) -> Tensor:
    """(prototypes,) mean over each prototype's top patches of (s_t - s_cached)²: unit patches (N, k), banks (n, k)."""
    top = max(1, round(share * len(patches)))
    drift: Tensor = _Drift.apply(patches, bank, cached, top)  # type: ignore[no-untyped-call]
    return drift


class _NearestPatch(torch.autograd.Function):
    """max_i M_i·p / |p|: to divide the products is less work than to normalise prototypes first."""

    @staticmethod
    def forward(ctx: Any, patches: Tensor, prototypes: Tensor) -> Tensor:
        """(B, P, k), (n, k) -> (B, n)"""
        lengths: Tensor = torch.linalg.vector_norm(prototypes, dim=1).clamp_min(1e-12)  # (n,)
        products = (patches.flatten(0, 1) @ prototypes.t()).view(*patches.shape[:2], -1)  # (B, P, n)
        best = products.amax(1)  # (B, n)
        ctx.save_for_backward(patches, prototypes, lengths, products, best)
        return best / lengths

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        patches, prototypes, lengths, products, best = ctx.saved_tensors
        nearest = (products == best[:, None]).to(products.dtype)  # (B, P, n), patches that tie share the gradient
        slope = nearest.mul_((gradient / lengths / nearest.sum(1))[:, None]).flatten(0, 1)  # (B*P, n)
        shrink = (gradient * best).sum(0) / lengths**3  # (n,) what a longer prototype loses
        by_prototype = torch.addcmul(slope.t() @ patches.flatten(0, 1), shrink[:, None], prototypes, value=-1)
        return (slope @ prototypes).view_as(patches), by_prototype


class _ClassCosts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, columns: Tensor, scale: float, cluster: float, separation: float) -> Tensor:
        b, rows = len(scores), torch.arange(len(scores))
        log_p = (scale * scores.sum(2)).log_softmax(1)  # (B, C)
        slope = log_p.exp()
        slope[rows, columns] -= 1
        slope = (scale * slope)[:, :, None].repeat(1, 1, scores.shape[2])  # (B, C, J)
        nearest, which = scores.max(2)  # (B, C)
        own = nearest[rows, columns]
        slope[rows, columns, which[rows, columns]] -= 2 * cluster
        costs = 2 * cluster * (1 - own) - log_p[rows, columns]
        if scores.shape[1] > 1:
            strange, column = nearest.scatter(1, columns[:, None], -torch.inf).max(1)
            slope[rows, column, which[rows, column]] += 2 * separation
            costs -= 2 * separation * (1 - strange)
        ctx.slope = slope.div_(b)
        return costs.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.slope * gradient, None, None, None, None


class _Drift(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, patches: Tensor, bank: Tensor, cached: Tensor, top: int) -> Tensor:
        """(N, k), (n, k), (n, k) -> (n,)"""
        near = (bank @ patches.t()).numpy()  # (n, N)
        least = np.partition(near, -top, axis=1)[:, -top, None]  # in a sixth of the time of topk
        shares = torch.from_numpy((near >= least).astype(near.dtype))  # (n, N)
        shares /= shares.sum(1, keepdim=True)
        moved = bank - cached
        change = moved @ patches.t()  # (n, N)
        weighted = shares.mul_(change)
        ctx.save_for_backward(patches, moved, weighted)
        return (weighted * change).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        patches, moved, weighted = ctx.saved_tensors
        slope = weighted * (2 * gradient)[:, None]  # (n, N)
        return slope.t() @ moved, slope @ patches, None, None
