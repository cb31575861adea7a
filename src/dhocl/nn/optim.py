"""AdamW for growing parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dhocl.core.devices import Device


def adamw_by_row(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    age: Tensor,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> None:
    """One step of AdamW, in place, with bias correction by the age of each row. Defaults as in torch.

    Parameter p, gradient g, bias-corrected moments m and v: all (rows, ...). Age (rows,) in float64.
    A bias-corrected moment is a weighted mean over steps, in which g has weight (1 - beta) / (1 - beta^age).
    """
    age += 1
    steps = age.view(-1, *(1,) * (p.dim() - 1))
    first, second = (((1 - beta) / (1 - beta**steps)).to(p.dtype) for beta in betas)  # 1 in the first step
    p.mul_(1 - lr * weight_decay)
    m.lerp_(g, first)
    v.lerp_(g * g, second)
    p.addcdiv_(m, v.sqrt().add_(eps), value=-lr)


class Moments(NamedTuple):
    """Optimizer state of a growing parameter (rows, ...)."""

    m: Tensor  # (rows, ...) mean of the gradients, bias-corrected
    v: Tensor  # (rows, ...) mean of their squares, bias-corrected
    age: Tensor  # (rows,) steps of each row; float64, since 1 - beta^age cancels digits

    @staticmethod
    def zero(p: Tensor) -> Moments:
        return Moments(torch.zeros_like(p), torch.zeros_like(p), p.new_zeros(len(p), dtype=torch.float64))

    def longer(self, rows: int) -> Moments:
        return Moments(*(_longer(values, rows) for values in self))


class Optimizer:
    """AdamW over named parameters.

    Parameters of fixed shape use torch's fused AdamW. Growing parameters are updated here, because torch counts steps
    per parameter: bias correction with the count of the oldest row would make the first steps of a new row too large.
    State is stored by name, because the order of parameters depends on the order of the classes.
    """

    training_only = True

    def __init__(self, weight_decay: float, device: Device = "cpu") -> None:
        self.device = device  # of the parameters
        self._weight_decay = weight_decay
        self._named: dict[str, nn.Parameter] = {}
        self._fixed = torch.optim.AdamW([{"params": []}], weight_decay=weight_decay, fused=True)
        self._growing: dict[str, Moments] = {}
        self._rates: dict[str, float] = {}  # of growing parameters

    def add(self, named: Iterable[tuple[str, nn.Parameter]], lr: float, grows: bool = False) -> None:
        """Add parameters; with `grows`, `grow` can append rows to them."""
        new = dict(named)
        if taken := new.keys() & self._named.keys():
            raise ValueError(f"the optimizer has parameters {sorted(taken)} already: choose other names")
        self._named |= new
        if grows:
            self._growing |= {name: Moments.zero(p) for name, p in new.items()}
            self._rates |= dict.fromkeys(new, lr)
        else:
            self._fixed.add_param_group({"params": list(new.values()), "lr": lr})

    def parameters(self) -> list[nn.Parameter]:
        return list(self._named.values())

    def grow(self, name: str, rows: int) -> nn.Parameter:
        """Replace the parameter by one with `rows` rows and return it; new rows are zero and have age 0.

        Allocated memory doubles when it is full, so adding rows one by one takes linear time in total.
        """
        self._growing[name] = self._growing[name].longer(rows)
        new = self._named[name] = nn.Parameter(_longer(self._named[name].detach(), rows))
        return new

    def step(self, loss: Tensor) -> None:
        """Backward pass, and one step of every parameter with a gradient."""
        for p in self._named.values():
            p.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        self._fixed.step()
        with torch.no_grad():
            for name, moments in self._growing.items():
                p = self._named[name]
                if p.grad is not None:
                    adamw_by_row(p, p.grad, *moments, self._rates[name], self._weight_decay)

    def state_dict(self) -> dict[str, Any]:
        """Moments by parameter name, without the parameters."""
        fixed = self._fixed.state
        state = {name: dict(fixed[p]) for name, p in self._named.items() if p in fixed}
        return state | {name: moments._asdict() for name, moments in self._growing.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load moments; those missing in the state become zero.

        Copies into new tensors: memory layout, and so every bit of the results, is as in an uninterrupted run.
        """
        self._fixed.state.clear()
        self._growing = {name: Moments.zero(self._named[name]) for name in self._growing}
        for name, moments in state.items():
            p = self._named[name]
            if name in self._growing:
                own = self._growing[name]._asdict()
            else:
                own = self._fixed.state[p] = {
                    key: torch.zeros_like(p) if value.shape == p.shape else torch.zeros_like(value, device=p.device)
                    for key, value in moments.items()
                }
            for key, value in moments.items():
                own[key].copy_(value)


def _longer(values: Tensor, rows: int) -> Tensor:
    """With zero rows appended: a longer view of the same storage if it has room (unused rows are zero), else a copy."""
    room = values.untyped_storage().nbytes() // (values.element_size() * values[0:1].numel()) if len(values) else 0
    if rows > room:
        grown = values.new_zeros((max(rows, 2 * room, 8), *values.shape[1:]))
        grown[: len(values)] = values
        return grown[:rows]
    return values.as_strided((rows, *values.shape[1:]), values.stride())
