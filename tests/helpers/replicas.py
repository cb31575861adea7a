"""A writer with new checkpoints, for replicas to follow."""

from __future__ import annotations

import httpx

from dhocl.service.keeper import Pace
from tests.helpers.serving import Client, examples, post, settled, until

TOKEN = "a-long-enough-token"
EACH = Pace(entries=1)  # a checkpoint after each micro-batch


def teach(client: httpx.Client, seed: int) -> None:
    assert post(client, examples(24, seed)).status_code == 202
    settled(client)


def saved(client: Client, seed: int) -> None:
    """Teach, and wait for the checkpoint."""
    teach(client, seed)
    until(lambda: client.service.engine._keeper._saved == client.service.snapshot.applied)
