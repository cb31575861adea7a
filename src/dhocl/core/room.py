"""Free memory, and a check before something large is begun."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from dhocl.core.errors import InputError

CGROUP = Path("/sys/fs/cgroup")  # the limit of a container


def free_memory(device: torch.device | None = None) -> int | None:
    """Bytes that are free: of a GPU, or else of main memory, at most what a container may use. None if unknown."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [_available(), _left_in_container()]
    return min((each for each in found if each is not None), default=None)


def check_room(need: float, what: str, advice: str, device: torch.device | None = None) -> None:
    """InputError if less than `need` bytes are free.

    Args:
        need: bytes.
        what: that needs them, such as `5000 images of 224 px`.
        advice: what to do.
        device: of the memory; None: main memory.
    """
    free = free_memory(device)
    if free is not None and need > free:
        place = f" on {device}" if device is not None and device.type == "cuda" else ""
        raise InputError(f"{what} need about {_gb(need)} of memory, but {_gb(free)} are free{place}: {advice}")


def _gb(amount: float) -> str:
    return f"{amount / 1e9:,.1f} GB" if amount >= 1e8 else f"{amount / 1e6:,.1f} MB"


def _available() -> int | None:
    """Linux knows what other programs could give back; elsewhere, pages that are not in use."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _left_in_container() -> int | None:
    try:
        limit, used = ((CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return int(limit) - int(used) + int(stat["inactive_file"])  # cached files count as used, but are given back
    except (OSError, ValueError, KeyError):  # "max": there is no limit
        return None
