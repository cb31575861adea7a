"""Forward pass of a large batch in parts, each in one thread, so that threads do not synchronise at every layer.

Time relative to one pass, at 64 px: 0.60 for 1,000 images in one thread, because activations of a part stay in the
cache; 0.4 to 0.6 for 250 images in two threads, while other programs use the processor; 1 for up to 128 images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

PART = 2**19  # pixels: 128 images of 64 px

_POOL: ContextVar[ThreadPoolExecutor | None] = ContextVar("pool", default=None)


@contextmanager
def side_by_side() -> Iterator[None]:
    """Inside, in the calling thread, a forward without gradients on a CPU is computed in parts."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=_work_alone) as pool:
            token = _POOL.set(pool)
            try:
                yield
            finally:
                _POOL.reset(token)
    finally:
        torch.set_num_threads(threads)  # new threads start with the last value that any thread set


def in_parts(encode: Callable[[Tensor], tuple[Tensor, ...]], pixels: Tensor) -> tuple[Tensor, ...]:
    """encode(pixels), (B, 3, H, W) -> tensors with B rows each."""
    pool = _POOL.get()
    size = max(1, PART // (pixels.shape[2] * pixels.shape[3]))
    if pool is None or len(pixels) <= size or torch.is_grad_enabled():
        return encode(pixels)
    return tuple(map(torch.cat, zip(*pool.map(encode, torch.split(pixels, size)), strict=True)))


def _work_alone() -> None:
    """Settings of each thread of the pool."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
