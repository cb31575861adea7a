"""The stand-in for a GPU refuses what CUDA refuses, permits what it permits, and finds mistakes that were planted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.checks import exam, feed, setup, stream
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.onlora import LowRank
from dhocl.methods.registry import find_method, method_settings
from dhocl.nn import backbones
from dhocl.nn.learner import Setup
from dhocl.nn.memory import Memory
from dhocl.nn.network import Network
from dhocl.nn.optim import Optimizer
from tests.helpers.standin import DEVICE, MixedError, OnDevice, accelerator

MIXING: dict[str, Callable[[Tensor, Tensor], Any]] = {  # of a tensor there and one here, both (3,)
    "sum": lambda there, here: there + here,
    "sum, the other way round": lambda there, here: here + there,
    "in place": lambda there, here: here.add_(there),
    "a number in place": lambda there, here: here.sum().add_(there.sum()),
    "product": lambda there, here: there @ here,
    "cat": lambda there, here: torch.cat([there, here]),
    "stack of numbers": lambda there, here: torch.stack([there.sum(), here.sum()]),
    "index of a CPU tensor": lambda there, here: here[there.long()],
    "assigned by index": lambda there, here: there.index_put_((here.long(),), here),
    "gather": lambda there, here: there.gather(0, here.long()),
    "index_add": lambda there, here: there.index_add(0, here.long(), there),
    "mask": lambda there, here: there.masked_fill(here > 0, 0.0),
    "where": lambda there, here: torch.where(here > 0, there, 0.0),
    "isin": lambda there, here: torch.isin(there, here),
    "cross-entropy": lambda there, here: F.cross_entropy(there[None], here[:1].long()),
    "layer": lambda there, here: nn.Linear(3, 2)(there),
    "backward": lambda there, here: (there.requires_grad_() * here).sum(),
}


@pytest.mark.parametrize("operation", MIXING)
def test_mixing_is_refused(operation: str) -> None:
    with accelerator():
        there, here = torch.ones(3, device="cuda"), torch.ones(3)
        with pytest.raises(MixedError, match="same device"):
            MIXING[operation](there, here)


def test_arrays_are_not_made_of_tensors_on_the_device() -> None:
    with accelerator():
        there = torch.ones(3, device="cuda")
        for convert in (lambda: there.numpy(), lambda: np.asarray(there), lambda: there.detach().numpy()):
            with pytest.raises(TypeError, match="cuda"):
                convert()
        assert there.cpu().numpy().sum() == there.sum().item() == sum(there.tolist()) == 3


PERMITTED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # of a tensor there and one here, both (3,)
    "a number": lambda there, here: there * here.sum(),
    "a number, the other way round": lambda there, here: here.sum() * there,
    "CPU indices": lambda there, here: there[here.long()],
    "a CPU mask": lambda there, here: there[here > 0],
    "a number by index": lambda there, here: there.index_put((here.long(),), torch.tensor(2.0)),
    "copied": lambda there, here: there.copy_(here),
    "moved": lambda there, here: there + here.to(there.device),
    "made beside it": lambda there, here: there.new_ones(3) + torch.ones_like(there) + there.new_tensor([1, 2, 3]),
    "made there": lambda there, here: there + torch.ones(3, device="cuda") + torch.tensor([1, 2, 3], device=DEVICE),
    "one-hot": lambda there, here: F.one_hot(there.long()),
    "factored": lambda there, here: torch.linalg.cholesky_ex(torch.diag(there))[0],
}


@pytest.mark.parametrize("operation", PERMITTED)
def test_what_cuda_permits_is_permitted_and_stays_there(operation: str) -> None:
    expected = PERMITTED[operation](torch.ones(3), torch.ones(3)) if "there" not in operation else None
    with accelerator():
        found = PERMITTED[operation](torch.ones(3, device="cuda"), torch.ones(3))
        assert found.device == DEVICE
        assert expected is None or torch.equal(found.cpu(), expected)


def test_a_network_is_trained_there_as_it_is_here() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    losses: dict[str, list[float]] = {}
    for device in ("cpu", "cuda"):
        with accelerator():
            net = copy.deepcopy(copy.deepcopy(made).to(device))
            assert all(isinstance(p, nn.Parameter) for p in net.parameters())
            assert {isinstance(t, OnDevice) for t in net.state_dict().values()} == {device == "cuda"}
            optimizer = torch.optim.AdamW(net.parameters(), fused=True)
            x = torch.arange(96.0).view(2, 3, 4, 4).to(device)
            losses[device] = []
            for _ in range(3):
                loss = F.cross_entropy(net(x), torch.tensor([0, 1], device=device))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                losses[device].append(loss.item())
    assert losses["cpu"] == losses["cuda"]
    assert len(set(losses["cpu"])) == 3


def test_gradients_pass_between_the_devices() -> None:
    with accelerator():
        w = torch.ones(3, requires_grad=True)
        (2 * (3 * w.to("cuda")).cpu()).sum().backward()
        assert w.grad is not None
        assert w.grad.tolist() == [6.0] * 3
        assert not isinstance(w.grad, OnDevice)


def _factors_on_the_cpu(self: LowRank, weight: Tensor, rank: int) -> None:
    nn.Module.__init__(self)
    self.A = nn.Parameter(torch.zeros(rank, weight[0].numel()))
    self.B = nn.Parameter(torch.zeros(len(weight), rank))
    self.register_buffer("start", torch.zeros_like(self.A))


def _tree_on_the_cpu(taxonomy: Taxonomy, device: object = "cpu", of: Any = TreeTable.of) -> TreeTable:
    return of(taxonomy)  # type: ignore[no-any-return]


def _stored_as_it_is(self: Memory, **items: Tensor) -> None:
    for values in items.values():
        values.numpy()


ON_THE_CPU = property(lambda self: "cpu", lambda self, value: None)
MISTAKES: dict[str, tuple[str, Any, str, Any]] = {  # method, and what to plant in it
    "targets stay on the CPU": ("er", Network, "targets", lambda net, y, tree: tree.complete(y)),
    "heads are made on the CPU": ("er", Optimizer, "device", ON_THE_CPU),
    "prototypes are made on the CPU": ("halo", Optimizer, "device", ON_THE_CPU),
    "the tree stays on the CPU": ("amber", TreeTable, "of", _tree_on_the_cpu),
    "features are stored as they are": ("halo", Memory, "insert", _stored_as_it_is),
    "factors of LoRA are made on the CPU": ("onlora", LowRank, "__init__", _factors_on_the_cpu),
}


def learns(method: str, ready: Setup) -> None:
    learner = find_method(method).learner(ready, method_settings(method, {}))  # type: ignore[call-arg]
    feed(learner, stream(3))
    learner.predict(exam()[0])


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, place, name, planted = MISTAKES[mistake]
    with accelerator():
        ready = setup()._replace(backbone=backbones.load("tiny", "cuda"))
        monkeypatch.setattr(place, name, planted, raising=False)
        with pytest.raises((MixedError, TypeError)):
            learns(method, ready)
