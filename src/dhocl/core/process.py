"""Process-wide settings. Only entry points call these: `dhocl` commands, sweep workers, Ray tasks."""

from __future__ import annotations

import ctypes
import gc
import os
from importlib import import_module
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # as in malloc.h
LARGEST = 64 * 2**20  # bytes of the largest block that is kept; glibc may keep about ten of them


def keep_freed_memory() -> None:
    """Let glibc reuse large freed blocks instead of returning each to the system.

    Without this, each batch of activations is a new mapping, and page faults make a forward pass of 125 images at 64 px
    take 1.4 times as long. Does nothing where the C library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library or operating system
        return
    mallopt(M_MMAP_THRESHOLD, LARGEST)
    mallopt(M_ARENA_MAX, 1)  # per-thread arenas return large blocks to the system
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def return_freed_memory() -> None:
    """Give back what `keep_freed_memory` kept. It changes no setting.

    After a run, the next one needs blocks of other sizes. A service that rests needs less than one that learns.
    """
    gc.collect()  # learners and their parts refer to each other
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        return


def prepare(threads: int | None = None) -> None:
    """Settings of a process that runs or serves: allocator, deterministic GPU kernels, threads of tensor operations.

    Another number of threads changes the last bits of results. None leaves it as it is.
    """
    import torch

    keep_freed_memory()
    torch.backends.cudnn.deterministic = True  # same seed, same run
    if threads is not None:
        torch.set_num_threads(threads)


def call(environment: dict[str, str], function: str, *arguments: Any) -> None:
    """Set environment variables, then import and call `module:function`.

    The target of a spawned process. Libraries such as OpenMP read their variables at import; this module imports none.
    """
    os.environ.update(environment)
    module, _, name = function.partition(":")
    getattr(import_module(module), name)(*arguments)
