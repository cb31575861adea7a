"""What decoders do in tests. They import this file, so it imports little."""

from __future__ import annotations

import os
import signal
import time
from typing import Any


def own_process(*_: Any) -> int:
    return os.getpid()


def hang(*_: Any) -> None:
    time.sleep(600)


def toil(*_: Any) -> None:
    while True:
        pass


def crash(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
