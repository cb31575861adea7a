"""Some rows of several banks, without putting the banks together first: these are large, what is looked at is not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def unit(x: Tensor) -> Tensor:
    """Vectors (..., k) at length one. Its backward is by hand, in a third of autograd's time."""
    vectors: Tensor = _Unit.apply(x)  # type: ignore[no-untyped-call]
    return vectors


def gather(parts: Sequence[Tensor], rows: Tensor) -> Tensor:
    """Ascending rows (n,), at least one, counted through parts (n_i, ...)."""
    starts = list(accumulate(map(len, parts), initial=0))
    edges = np.searchsorted(rows.numpy(), starts).tolist()
    own = zip(parts, starts, pairwise(edges), strict=False)
    return torch.cat([part.index_select(0, rows[i:j] - start) for part, start, (i, j) in own if i < j])


def similarities(banks: Sequence[Tensor], a: Tensor, b: Tensor) -> Tensor:
    """S(P_a, P_b) = max over pairs of cosines: of classes (n,) each, counted through banks (n_i, J, k) -> (n,).

    Only the two prototypes that are nearest have a gradient, so only these are taken with one.
    """
    size = banks[0].shape[1]
    with torch.no_grad():
        rows, places = torch.unique(torch.cat([a, b]), return_inverse=True)
        left, right = unit(gather(banks, rows)).index_select(0, places).chunk(2)  # (n, J, k)
        best = torch.bmm(left, right.transpose(1, 2)).flatten(1).argmax(1)  # (n,) of J * J
    rows, places = torch.unique(torch.cat([a * size + best // size, b * size + best % size]), return_inverse=True)
    nearest = unit(gather([bank.flatten(0, 1) for bank in banks], rows))
    left, right = nearest.index_select(0, places).chunk(2)  # (n, k)
    return (left * right).sum(1)


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-12)
        vectors = x / lengths
        ctx.save_for_backward(vectors, lengths)
        return vectors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        vectors, lengths = ctx.saved_tensors
        along = (gradient * vectors).sum(-1, keepdim=True)
        return torch.addcmul(gradient, along, vectors, value=-1).div_(lengths)
