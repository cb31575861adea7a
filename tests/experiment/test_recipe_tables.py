"""What the tables of the recipes show."""

from __future__ import annotations

from typing import Any

import pytest

from dhocl.experiment.recipes import RECIPES, Numbers
from dhocl.report.tables import KNOWN, tabulate


@pytest.mark.parametrize("name", ["main", "throughput"])
def test_cost_state_and_the_open_population_stand_beside_the_accuracy(name: str) -> None:
    (numbers,) = (exhibit for exhibit in RECIPES[name].exhibits if isinstance(exhibit, Numbers))
    assert {"AAUC", "open.AAUC", "cost_vs_er", "state_mb"} <= set(numbers.names)
    values: dict[str, Any] = {"AAUC": 60.0, "open.AAUC": 50.0, "cost_vs_er": 1.25, "state_mb": 70.0}
    table = tabulate("cifar100", numbers.names, {"er": {(0, "s0"): values}}, {})
    shown = dict(zip((number.name for number in table.numbers), table.lines[0].cells, strict=True))
    for column, value in values.items():
        assert list(shown[column].values.values()) == [value]


def test_less_cost_and_a_smaller_state_are_better() -> None:
    assert [KNOWN[name].sign for name in ("open.AAUC", "cost_vs_er", "state_mb")] == [1, -1, -1]
