"""AdamW over parameters that grow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Optimizer:
    """Fused AdamW over named parameters.

    Growing a parameter means a new tensor. It is swapped in here together with its moments, or the new rows would
    silently not train. State is kept by name, since the order of parameters depends on the order in which classes came.
    """

    def __init__(self, weight_decay: float) -> None:
        self._weight_decay = weight_decay
        self._adam: torch.optim.AdamW | None = None  # AdamW refuses to start without parameters
        self._named: dict[str, nn.Parameter] = {}

    def add(self, named: Iterable[tuple[str, nn.Parameter]], lr: float) -> None:
        """Train these too."""
        new = dict(named)
        if taken := new.keys() & self._named.keys():
            raise ValueError(f"parameters {sorted(taken)} are trained already")
        self._named |= new
        group = {"params": list(new.values()), "lr": lr}
        if self._adam is None:
            self._adam = torch.optim.AdamW([group], weight_decay=self._weight_decay, fused=True)
            return
        alike = next((known for known in self._adam.param_groups if known["lr"] == lr), None)
        if alike is None:
            self._adam.add_param_group(group)
        else:  # a step costs a call for each group
            alike["params"].extend(new.values())

    def parameters(self) -> list[nn.Parameter]:
        return list(self._named.values())

    def grow(self, name: str, rows: int) -> nn.Parameter:
        """The parameter with rows appended up to `rows`, in place of the old one, moments with it.

        Room doubles when it is used up, so growing one class at a time costs linear time in total.
        """
        assert self._adam is not None
        old = self._named[name]
        new = self._named[name] = nn.Parameter(_longer(old.detach(), rows))
        for group in self._adam.param_groups:
            group["params"] = [new if p is old else p for p in group["params"]]
        if old in self._adam.state:
            moments = self._adam.state.pop(old)
            self._adam.state[new] = {
                key: _longer(value, rows) if value.shape == old.shape else value for key, value in moments.items()
            }
        return new

    def step(self, loss: Tensor) -> None:
        """One backward, one step."""
        assert self._adam is not None, "nothing to train"
        self._adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()

    def state_dict(self) -> dict[str, Any]:
        """Moments by parameter name; the values belong to whoever made the parameter."""
        state = {} if self._adam is None else self._adam.state
        return {name: dict(state[p]) for name, p in self._named.items() if p in state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copies into tensors made here: layout and alignment, and with them the last bit, are as in a first run."""
        assert self._adam is not None
        self._adam.state.clear()
        for name, moments in state.items():
            p = self._named[name]
            own = self._adam.state[p] = {
                key: torch.zeros_like(p) if value.shape == p.shape else torch.zeros_like(value, device=p.device)
                for key, value in moments.items()
            }
            for key, value in moments.items():
                own[key].copy_(value)


def _longer(values: Tensor, rows: int) -> Tensor:
    """With zero rows appended: a longer view of the same memory if there is room behind, which was zero all along."""
    room = values.untyped_storage().nbytes() // (values.element_size() * values[0:1].numel()) if len(values) else 0
    if rows > room:
        grown = values.new_zeros((max(rows, 2 * room, 8), *values.shape[1:]))
        grown[: len(values)] = values
        return grown[:rows]
    return values.as_strided((rows, *values.shape[1:]), values.stride())
