from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dhocl.checks import exam, feed, setup, stream
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn import learner
from dhocl.nn.learner import Batch, Learner, Stateful


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


class Log(Counter):
    training_only = True


class Counting(Learner):
    """A learner of two components that know of no memory and no optimizer."""

    def __init__(self) -> None:
        self.counter, self.log = Counter(), Log()

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.counter.count += len(batch.y)
        self.log.count += 1
        return {}

    def predict(self, x: Tensor) -> dict[int, Tensor]:
        return {0: torch.full((len(x), 1), float(self.counter.count))}

    def components(self) -> dict[str, Stateful]:
        return {"counter": self.counter, "log": self.log}


def test_a_reader_copies_all_components_but_those_for_training_only() -> None:
    own = Counting()
    reader = own.reader()
    assert reader.counter is not own.counter
    assert reader.log is own.log


def test_a_reader_of_er_shares_memory_and_optimizer_and_has_its_own_network() -> None:
    own = ER(setup(), ReplaySettings())
    feed(own, stream(3))
    reader = own.reader()
    assert reader.memory is own.memory
    assert reader.net.optimizer is own.net.optimizer
    assert reader.net.f is not own.net.f
    assert reader.rng is not own.rng
    x, _ = exam()
    assert all(torch.allclose(p, own.predict(x)[level], atol=1e-5) for level, p in reader.predict(x).items())


def test_state_is_that_of_the_components_and_loaded_in_their_order() -> None:
    own, other = Counting(), Counting()
    own.learn(Batch(torch.zeros(3, 3, 4, 4), torch.zeros(3)), Taxonomy())
    assert own.state_dict() == {"counter": {"count": 3}, "log": {"count": 1}}
    loaded = []
    for name, component in other.components().items():
        component.load_state_dict = lambda state, name=name: loaded.append((name, state))  # type: ignore[method-assign]
    other.load_state_dict(own.state_dict())
    assert loaded == [("counter", {"count": 3}), ("log", {"count": 1})]


def test_nothing_is_held_and_shown_by_default() -> None:
    assert Counting().held().shape == (0,)
    assert Counting().matrices() == {}


@pytest.mark.parametrize("concrete", ["memory", "optim", "network", "objectives"])
def test_the_contract_imports_no_concrete_component(concrete: str) -> None:
    tree = ast.parse(Path(learner.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert f"dhocl.nn.{concrete}" not in imported
