"""Imported by every Python that has this folder in its path."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from PIL import Image

_open = Image.open


def _watched(*given: Any, **more: Any) -> Image.Image:
    image = _open(*given, **more)
    with Path(os.environ["OPENED"]).open("a") as file:
        file.write(f"{os.getpid()} {image.width}\n")
    while image.width == int(os.environ["TOILS"]):
        pass
    if image.width == int(os.environ["CRASHES"]):
        os.kill(os.getpid(), signal.SIGSEGV)
    return image


if "OPENED" in os.environ:  # pytest imports every file to look for doctests, and must not be watched
    Image.open = _watched
