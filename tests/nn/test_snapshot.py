from __future__ import annotations

import torch

from dhocl.checks import exam, feed, setup, stream
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.snapshot import Snapshot


def test_a_snapshot_gives_the_logits_of_the_network_it_was_taken_of() -> None:
    learner = ER(setup(), ReplaySettings())
    curator = feed(learner, stream(3))
    x, _ = exam()
    then = learner.net(x)
    snapshot = Snapshot(learner.net)
    assert not snapshot.taken
    snapshot.take()
    feed(learner, stream(3, seed=1), curator)
    for level, z in snapshot(x).logits.items():
        torch.testing.assert_close(z, then.logits[level])
    assert not torch.allclose(learner.net(x).logits[1][:, :1], then.logits[1][:, :1])
