"""Keep freed memory in the process."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # names and numbers of malloc.h


def keep_freed_memory() -> None:
    """Let glibc hold on to large blocks instead of giving each back to the system.

    A batch of activations is large enough to be a mapping of its own, which is given back when it is freed. The next
    one is then paid for page by page: a forward of 250 images at 64 px takes 1.7 times as long. For processes that do
    nothing else: what they once needed stays theirs until they end. Elsewhere than on glibc this does nothing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library, another system
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
