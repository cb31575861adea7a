"""A Pillow that counts and misbehaves, for tests of the service as a process: `started(..., env=watched(file))`.

The folder of this file has a `sitecustomize`, which the service and the processes that decode import when they start.
"""

from __future__ import annotations

import os
from pathlib import Path

TOILS, CRASHES = 77, 79  # widths of images that take for ever, or end the process that opens them


def watched(file: Path) -> dict[str, str]:
    """The environment of a service. `file` gets a line per image: the process and the width."""
    path = os.pathsep.join([str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    own = {"OPENED": str(file), "TOILS": str(TOILS), "CRASHES": str(CRASHES)}
    return os.environ | own | {"PYTHONPATH": path.rstrip(os.pathsep)}
