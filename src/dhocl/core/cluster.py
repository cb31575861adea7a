"""Connect to a Ray cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from dhocl.core.errors import InputError


def connect(address: str | None, workers: int) -> Any:
    """The module ray, connected to the cluster at `address`, or to one started here with `workers` cores (0: all)."""
    try:
        import ray
    except ImportError:
        raise InputError("`engine` ray needs the ray package: pip install 'dhocl[ray]'") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends no statistics
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init(num_cpus=workers or None, include_dashboard=False, **quiet)
        else:
            _check_reachable(address)
            ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"the cluster at {address or 'this machine'} can not be reached: {reason}; check `address`"
        ) from None
    return ray


def shares(resources: Mapping[str, float]) -> dict[str, int]:
    """What a task or an actor asks for, of what a cluster has: a core, and a GPU if there are some.

    >>> shares({"CPU": 8.0, "GPU": 2.0}), shares({"CPU": 8.0})
    ({'num_cpus': 1, 'num_gpus': 1}, {'num_cpus': 1, 'num_gpus': 0})
    """
    return {"num_cpus": 1, "num_gpus": 1 if resources.get("GPU", 0) >= 1 else 0}


def _check_reachable(address: str) -> None:
    """Fail at once: Ray itself waits for a minute."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()
