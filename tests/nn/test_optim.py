from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.core import checkpoint
from dhocl.nn.heads.growing import GrowingRows
from dhocl.nn.optim import Optimizer
from tests.helpers.tensors import normal

WIDTH = 64  # whole vectors of any processor: the bits of a row do not depend on its place


def push(optimizer: Optimizer, p: Tensor, g: Tensor) -> None:
    """One step with the gradient g."""
    optimizer.step((p * g).sum())


def travels(births: list[int], gradients: Tensor, weight_decay: float = 0.0) -> Tensor:
    """(rows, ages, WIDTH): where each row is at each age, if at age i it gets gradients[row, i]."""
    optimizer = Optimizer(weight_decay)
    rows = GrowingRows("w", (WIDTH,), optimizer, 0.01)
    ages = gradients.shape[1]
    path = torch.zeros(len(births), ages, WIDTH)
    for step in range(births[-1] + ages):
        if born := births.count(step):
            rows.extend(torch.ones(born, WIDTH))
        age = [step - birth for birth in births[: len(rows)]]
        push(optimizer, rows.parameter, torch.stack([gradients[row, min(a, ages - 1)] for row, a in enumerate(age)]))
        for row, a in enumerate(age):
            if a < ages:
                path[row, a] = rows.parameter[row].detach()
    return path


# -- rows of different age -------------------------------------------------------------------------------------


def test_rows_born_at_different_times_move_alike() -> None:
    births = [0, 0, 1, 7, 7, 60, 200]
    gradients = normal(50, WIDTH).expand(len(births), -1, -1)
    path = travels(births, gradients, weight_decay=0.1)
    assert not torch.equal(path[0, 0], path[0, 49])
    assert all(torch.equal(row, path[0]) for row in path)


def test_a_late_row_travels_as_far_as_an_early_one() -> None:
    """With one count of steps for all rows, those of steps 188 and 1,563 travel 2.5 and 5.0 times as far."""
    births = [0, 188, 1563]
    distance = (travels(births, normal(3, 50, WIDTH).abs())[:, -1] - 1).abs().mean(1)
    torch.testing.assert_close(distance / distance[0], torch.ones(3), rtol=0, atol=0.05)


def test_each_row_trains_as_a_parameter_of_its_own_by_torch() -> None:
    values, data = normal(40, 6), normal(30, 16, 6, seed=1)
    optimizer = Optimizer(1e-2)
    rows = GrowingRows("w", (6,), optimizer, 0.1)
    cohorts: list[nn.Parameter] = []
    reference: list[torch.optim.Optimizer] = []
    for step, x in enumerate(data):
        if step % 3 == 0:  # 1, 5, 9, ... classes
            more = values[len(rows) : 4 * (step // 3) + 1]
            rows.extend(more)
            cohorts.append(nn.Parameter(more.clone()))
            reference.append(torch.optim.AdamW([cohorts[-1]], lr=0.1, weight_decay=1e-2))
        target = torch.arange(16) % len(rows)
        optimizer.step(F.cross_entropy(x @ rows.parameter.t(), target))
        for adam in reference:
            adam.zero_grad()
        F.cross_entropy(x @ torch.cat(cohorts).t(), target).backward()
        for adam in reference:
            adam.step()
    assert len(rows) == 37
    torch.testing.assert_close(rows.parameter.detach(), torch.cat(cohorts).detach())


@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_rows_of_one_age_train_as_by_torch(shape: tuple[int, ...]) -> None:
    optimizer = Optimizer(0.1)
    rows = GrowingRows("w", shape, optimizer, 0.02)
    rows.extend(normal(7, *shape))
    expected = nn.Parameter(normal(7, *shape))
    adam = torch.optim.AdamW([expected], lr=0.02, weight_decay=0.1)
    for seed in range(300):
        g = normal(7, *shape, seed=seed) * 10.0 ** -(seed % 9)  # down to where eps counts
        push(optimizer, rows.parameter, g)
        expected.grad = g
        adam.step()
        torch.testing.assert_close(rows.parameter.detach(), expected.detach(), rtol=1e-5, atol=1e-6)


def test_eps_is_that_of_torch() -> None:
    """Gradients as small as eps, so that it decides how far the first step goes."""
    optimizer = Optimizer(0.0)
    rows = GrowingRows("w", (3,), optimizer, 1.0)
    rows.extend(torch.zeros(1, 3))
    push(optimizer, rows.parameter, torch.tensor([[1e-8, 1e-9, 1.0]]))
    expected = torch.tensor([[-1 / 2, -1 / 11, -1.0]])
    torch.testing.assert_close(rows.parameter.detach(), expected, rtol=1e-6, atol=0)


# -- growth ----------------------------------------------------------------------------------------------------


def test_growth_does_not_disturb_old_rows() -> None:
    optimizers = Optimizer(0.1), Optimizer(0.1)
    alone, joined = (GrowingRows("w", (WIDTH,), optimizer, 0.1) for optimizer in optimizers)
    for rows in (alone, joined):
        rows.extend(normal(3, WIDTH))
    for step in range(40):
        if step % 2:
            joined.extend(torch.ones(1, WIDTH))  # 23 rows in the end: room is used up twice
        g = normal(len(joined), WIDTH, seed=step)
        push(optimizers[0], alone.parameter, g[:3])
        push(optimizers[1], joined.parameter, g)
    assert torch.equal(alone.parameter, joined.parameter[:3])


def test_growing_keeps_the_moments() -> None:
    optimizer = Optimizer(0.0)
    rows = GrowingRows("w", (2,), optimizer, 0.1)
    rows.extend(torch.ones(8, 2))
    optimizer.step(rows.parameter.square().sum())
    before = optimizer.state_dict()["w"]
    assert not rows.state_dict()["rows"].requires_grad
    rows.extend(torch.ones(3, 2))
    after = optimizer.state_dict()["w"]
    for key in ("m", "v", "age"):
        assert torch.equal(after[key][:8], before[key])
        assert (after[key][:8] > 0).all()
        assert after[key][8:].abs().sum() == 0
    optimizer.step(rows.parameter.square().sum())
    assert (rows.parameter[8:] != 1).all(), "new rows must train"


def test_growing_one_by_one_copies_little() -> None:
    optimizer = Optimizer(0.0)
    rows = GrowingRows("w", (1,), optimizer, 0.1)
    storages: dict[str, set[int]] = {"p": set(), "m": set(), "v": set(), "age": set()}
    for _ in range(1000):
        rows.extend(torch.ones(1, 1))
        for key, tensor in ({"p": rows.parameter} | optimizer.state_dict()["w"]).items():
            storages[key].add(tensor.data_ptr())
    assert all(len(places) <= 8 for places in storages.values())


# -- what has a gradient, names, rates ---------------------------------------------------------------------------


def test_without_a_gradient_nothing_moves_and_no_row_ages() -> None:
    optimizer = Optimizer(0.1)
    used, idle = (GrowingRows(name, (2,), optimizer, 0.1) for name in ("used", "idle"))
    fixed = nn.Parameter(torch.ones(2))
    optimizer.add([("fixed", fixed)], 0.1)
    for rows in (used, idle):
        rows.extend(torch.ones(3, 2))
    for _ in range(5):
        push(optimizer, used.parameter, torch.ones(3, 2))
    assert torch.equal(idle.parameter, torch.ones(3, 2))
    assert torch.equal(fixed, torch.ones(2))
    assert optimizer.state_dict()["used"]["age"].tolist() == [5, 5, 5]
    assert optimizer.state_dict()["idle"]["age"].tolist() == [0, 0, 0]
    moved = used.parameter.detach().clone()
    optimizer.step(idle.parameter.sum() + fixed.sum())
    assert torch.equal(used.parameter, moved), "gradients of the step before are gone"
    torch.testing.assert_close(idle.parameter.detach(), torch.full((3, 2), 0.89))  # 0.99 by decay, a first step of 0.1
    torch.testing.assert_close(fixed.detach(), torch.full((2,), 0.89))


def test_each_parameter_has_its_own_rate() -> None:
    optimizer = Optimizer(0.0)
    rates = [1e-3, 0.1, 0.1, 0.2]  # 1e-3 is the default of torch
    fixed = [nn.Parameter(torch.zeros(2)) for _ in rates]
    growing = [GrowingRows(f"growing.{i}", (), optimizer, rate) for i, rate in enumerate(rates)]
    for i, rate in enumerate(rates):
        optimizer.add([(f"fixed.{i}", fixed[i])], rate)
        growing[i].extend(torch.zeros(2))
    everything = [*fixed, *(rows.parameter for rows in growing)]
    assert {id(p) for p in optimizer.parameters()} == {id(p) for p in everything}
    optimizer.step(torch.stack(everything).sum())
    torch.testing.assert_close(torch.stack(everything)[:, 0].detach(), -torch.tensor(rates + rates))


def test_a_name_is_trained_once() -> None:
    optimizer = Optimizer(0.0)
    optimizer.add([("w", nn.Parameter(torch.zeros(1)))], 0.1)
    with pytest.raises(ValueError, match="'w'"):
        optimizer.add([("w", nn.Parameter(torch.zeros(1)))], 0.1)
    with pytest.raises(ValueError, match="'w'"):
        GrowingRows("w", (), optimizer, 0.1)


# -- resuming --------------------------------------------------------------------------------------------------


class Small:
    """A fixed layer below a weight and a bias that grow."""

    def __init__(self) -> None:
        self.optimizer = Optimizer(0.1)
        self.layer = nn.Parameter(normal(5, 6))
        self.optimizer.add([("layer", self.layer)], 0.01)
        self.weight = GrowingRows("weight", (5,), self.optimizer, 0.1)
        self.bias = GrowingRows("bias", (), self.optimizer, 0.1)

    def train(self, steps: range) -> None:
        for step in steps:
            if step % 4 == 0:
                self.weight.extend(normal(3, 5, seed=step))
                self.bias.extend(normal(3, seed=step))
            hidden = normal(8, 6, seed=step) @ self.layer.t()
            bias = self.bias.parameter if step % 3 else 0  # now and then without a gradient
            logits = hidden @ self.weight.parameter.t() + bias
            self.optimizer.step(F.cross_entropy(logits, torch.arange(8) % len(self.weight)))

    def values(self) -> list[Tensor]:
        return [p.detach().clone() for p in (self.layer, self.weight.parameter, self.bias.parameter)]


@pytest.mark.parametrize("used", [False, True])
def test_resumed_is_the_same_bit_for_bit(used: bool, tmp_path: Path) -> None:
    whole, stopped, resumed = Small(), Small(), Small()
    whole.train(range(30))
    stopped.train(range(14))
    if used:  # what an optimizer was before does not show after loading
        resumed.train(range(20))
    path = checkpoint.save(tmp_path, stopped.optimizer.state_dict())
    with torch.no_grad():
        resumed.layer.copy_(stopped.layer)
    resumed.weight.load_state_dict(stopped.weight.state_dict())
    resumed.bias.load_state_dict(stopped.bias.state_dict())
    resumed.optimizer.load_state_dict(checkpoint.load(path))
    resumed.train(range(14, 30))
    assert all(torch.equal(a, b) for a, b in zip(whole.values(), resumed.values(), strict=True))


def test_moments_that_a_state_leaves_out_start_anew() -> None:
    small = Small()
    small.train(range(6))
    state = small.optimizer.state_dict()
    small.optimizer.load_state_dict({"weight": state["weight"]})
    kept = small.optimizer.state_dict()["weight"]
    assert all(torch.equal(kept[key], state["weight"][key]) for key in ("m", "v", "age"))
    before, sides = small.values(), normal(5, 6).sign()
    small.optimizer.step((small.layer * sides).sum() + small.weight.parameter.sum() + small.bias.parameter.sum())
    torch.testing.assert_close(small.layer.detach(), before[0] * 0.999 - 0.01 * sides)  # as in a first step
    torch.testing.assert_close(small.bias.parameter.detach(), before[2] * 0.99 - 0.1)
    assert state["weight"]["age"].tolist() == [6, 6, 6, 2, 2, 2], "a state that was loaded is not written to"
