from __future__ import annotations

import pytest
import torch
from torch import nn

from dhocl.core.rng import Rng
from dhocl.nn.heads.seeded import seeded


@pytest.mark.parametrize(
    ("layer", "inputs"), [(nn.Linear(64, 200), 64), (nn.Conv2d(4, 200, 4), 64), (nn.Conv2d(8, 400, 4, groups=8), 16)]
)
def test_values_are_uniform_and_as_large_as_those_of_pytorch(layer: nn.Module, inputs: int) -> None:
    seeded(layer, Rng(0, "heads"))
    bound = inputs**-0.5
    for p in (p.detach() for p in layer.parameters()):
        assert p.abs().max() <= bound
        assert p.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
        assert abs(p.mean()) < 0.1 * bound


def test_values_depend_on_the_seed_alone() -> None:
    first, again, other = (
        seeded(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), Rng(seed, "heads"))
        for seed in (0, 0, 1)
    )
    for place in (0, 2):
        for name in ("weight", "bias"):
            values = [getattr(net[place], name) for net in (first, again, other)]
            assert torch.equal(values[0], values[1])
            assert not torch.equal(values[0], values[2])
    assert torch.equal(first[1].weight, torch.ones(4)), "other layers stay"
