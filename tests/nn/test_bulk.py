"""Sums of a part of a data set against sums over its rows."""

from __future__ import annotations

import torch

from dhocl.nn.heads.bulk import BulkSums
from tests.helpers.tensors import precise


def test_soft_targets_are_summed_over_the_rows_that_have_one() -> None:
    """Level 0 has a target in two rows of four, level 1 in none: it gets no sums."""
    phi, targets = precise(4, 3), torch.zeros(4, 2, dtype=torch.float64)
    targets[1], targets[3] = torch.tensor([0.25, 0.5]), torch.tensor([0.0, 1.0])
    sums = BulkSums(3, sample=10)
    sums.add_soft(phi, {0: targets, 1: torch.zeros(4, 5)})
    assert list(sums.statistics.soft) == [0]
    system = sums.statistics.soft[0]
    torch.testing.assert_close(system.A, 0.75 * phi[1].outer(phi[1]) + phi[3].outer(phi[3]))
    torch.testing.assert_close(system.M, torch.stack([0.25 * phi[1], 0.5 * phi[1] + phi[3]]))
    torch.testing.assert_close(system.N, torch.tensor([0.25, 1.5], dtype=torch.float64))
