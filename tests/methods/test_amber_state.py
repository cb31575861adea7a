"""AMBER's state: a checkpoint has all of it, and its size does not grow with the stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dhocl.core import checkpoint
from dhocl.experiment.run import nbytes
from dhocl.methods.amber import Amber, AmberSettings
from dhocl.nn import ledger
from dhocl.nn.heads import window
from dhocl.nn.learner import Batch
from tests.helpers.states import values
from tests.helpers.trees import balanced_tree
from tests.helpers.vectors import vector_setup

GROUPS, KINDS = 4, 12  # three kinds in each group
D = GROUPS + KINDS
WRONG, LOOSE = GROUPS, GROUPS + KINDS - 1  # kinds of the first and of the last group


def amber(**changes: Any) -> Amber:
    chosen = {"window": 64, "refresh": 16, "calibration": 100, "recency": 10.0, "margin": 10.0, "gamma": 5.0} | changes
    return Amber(vector_setup(D), AmberSettings(**chosen))


class World:
    """Kinds that come one after the other, labelled as kind or as group. One has a wrong link, and one has none."""

    def __init__(self) -> None:
        self.tree = balanced_tree(GROUPS, KINDS // GROUPS)
        self.tree.link(WRONG, 1)
        self.tree.unlink(LOOSE)
        self.rng = np.random.default_rng(0)
        self.steps = 0

    def images(self, kinds: np.ndarray) -> Tensor:
        """(n, D, 1, 1): each resembles its group and its kind."""
        shown = np.eye(KINDS)[kinds]
        x = np.hstack([shown.reshape(-1, GROUPS, KINDS // GROUPS).sum(2), shown])
        return torch.from_numpy(x + self.rng.normal(0, 0.3, x.shape)).float()[:, :, None, None]

    def batch(self) -> Batch:
        kinds = (self.steps + self.rng.integers(0, 2, 8)) % KINDS
        self.steps += 1
        y = np.where(self.rng.random(8) < 0.5, GROUPS + kinds, kinds // (KINDS // GROUPS))
        return Batch(self.images(kinds), torch.from_numpy(y))


def test_killed_and_resumed_it_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    world, whole, resumed = World(), amber(), amber()

    def learn(steps: int, *learners: Amber) -> None:
        for _ in range(steps):
            batch = world.batch()
            for learner in learners:
                learner.learn(batch, world.tree)
                learner.foresee(batch.x)

    learn(42, whole)
    assert whole.window.advantage > whole.settings.margin, "the gate is open"
    assert whole.window.left.values.sum() > 0, "completed samples have left the window"
    assert whole.tree.doubted == {WRONG: 1}
    assert all((log != whole.penalties._start).all() for log in whole.penalties.log.values())
    assert 0 < whole.reliability.fitted_at < whole.window.seen - whole.window.new
    assert whole._foresight is not None
    assert whole._foresight.placements
    assert whole._behind
    resumed.load_state_dict(checkpoint.load(checkpoint.save(tmp_path, whole.state_dict())))
    assert values(resumed.state_dict()) == values(whole.state_dict())
    learn(12, whole, resumed)
    assert values(resumed.state_dict()) == values(whole.state_dict())


@pytest.mark.parametrize(("remembered", "targets"), [(20, 1000), (1000, 30)])
def test_its_size_does_not_grow_with_the_stream(remembered: int, targets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "RECENT", 80)
    monkeypatch.setattr(ledger, "REMEMBERED", remembered)
    monkeypatch.setattr(ledger, "VALUES", targets)
    world, learner = World(), amber(completion="always", window=32, refresh=8, calibration=30, doubt=False)

    def size(samples: int) -> int:
        while learner.window.seen < samples or learner.window.new:
            learner.learn(world.batch(), world.tree)
        learner.foresee(world.batch().x)
        state = learner.state_dict()
        left = state["window"].pop("left")
        assert max(len(left[name]) for name in ("keys", "nodes", "serials")) <= remembered
        assert 0 < max(len(left[name]) for name in ("owners", "levels", "columns", "values")) <= targets
        return nbytes(state)

    assert size(3 * 32) == size(10 * 32)
