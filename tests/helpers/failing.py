"""A learner that fails on request, for tests of the service as a process: `--method tests.helpers.failing:Failing`."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER
from dhocl.nn.learner import Batch

FAULTS = "FAULTS"  # variable that names a file with an exception and how often it is raised: `MemoryError 1`
SLOW = "SLOW"  # variable with the seconds that a step takes
ERRORS = {"MemoryError": MemoryError, "RuntimeError": RuntimeError}


class Failing(ER):
    """Replay that fails after a step, as often as the file says, and on every batch with a black or a white image."""

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        time.sleep(float(os.environ.get(SLOW, 0)))
        result = super().learn(batch, taxonomy)
        if not batch.x.flatten(1).any(1).all():
            raise ValueError("a black image")
        if batch.x.flatten(1).eq(255).all(1).any():
            raise MemoryError("a white image")
        file = Path(os.environ[FAULTS])
        with suppress(FileNotFoundError):
            name, most = file.read_text().split()
            if failures(file) < int(most):
                with _counted(file).open("a") as count:
                    count.write(".")
                raise ERRORS[name]("on request")
        return result


def failures(file: Path) -> int:
    """How often it has failed on request."""
    return _counted(file).stat().st_size if _counted(file).exists() else 0


def _counted(file: Path) -> Path:
    return file.with_suffix(".count")  # a file of its own, as only the test writes the other
