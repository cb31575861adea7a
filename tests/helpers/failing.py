"""A learner that fails on request, for tests of the service as a process: `--method tests.helpers.failing:Failing`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER
from dhocl.nn.learner import Batch

FAULTS = "FAULTS"  # variable that names a file with an exception and how often it is raised: `MemoryError 1`
SLOW = "SLOW"  # variable with the seconds that a step takes
ERRORS = {"MemoryError": MemoryError, "RuntimeError": RuntimeError}


class Failing(ER):
    """Replay that fails after a step, as often as the file says, and on every batch with a black image."""

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        time.sleep(float(os.environ.get(SLOW, 0)))
        result = super().learn(batch, taxonomy)
        if not batch.x.flatten(1).any(1).all():
            raise ValueError("a black image")
        file = Path(os.environ[FAULTS])
        name, _, left = file.read_text().partition(" ") if file.exists() else ("", "", "0")
        if int(left):
            file.write_text(f"{name} {int(left) - 1}")
            raise ERRORS[name]("on request")
        return result
