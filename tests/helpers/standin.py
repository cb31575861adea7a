"""A stand-in for a GPU: tensors that hold ordinary values and refuse to mix with those of the CPU, as CUDA's do.

    with accelerator():
        x = torch.zeros(3, device="cuda")  # x.device is cuda:0
        x + torch.zeros(3)  # raises MixedError
        x.numpy()  # raises TypeError

What CUDA permits is permitted: numbers (CPU tensors of no dimension) in element-wise operations, CPU indices in x[...],
and copies by `to`, `cpu`, `copy_` and assignment. All values are computed on the CPU, so a program must have the same
results as on the CPU, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

DEVICE = torch.device("cuda", 0)
aten = torch.ops.aten
NUMBERS = {aten.fill.Tensor, aten.fill_.Tensor}  # take numbers, as element-wise operations do
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
COPYING = {aten.copy_.default, aten._to_copy.default}
WHOLE = {F.one_hot, F.affine_grid}  # make tensors inside, beside their arguments: run on ordinary tensors as a whole


class MixedError(RuntimeError):
    """An operation on tensors of two devices."""


class OnDevice(Tensor):
    """A tensor of the stand-in. Its storage is ordinary memory."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return DEVICE

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        return _plain(self).tolist()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"OnDevice({_plain(self)})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():  # type: ignore[no-untyped-call]
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = _tensors((args, kwargs))
        _refuse_to_mix(func, args, given)
        with torch._C._DisableTorchDispatch():
            result = func(*args, **(kwargs or {}))
        same = {id(each): each for each in given}  # in-place operations return an argument, which stays where it is
        return tree_map_only(Tensor, lambda each: same[id(each)] if id(each) in same else _tagged(each), result)


def _refuse_to_mix(func: Any, args: Any, given: list[Tensor]) -> None:
    if func in COPYING:
        return
    if func in INDEXING and isinstance(args[0], OnDevice):
        given = _tensors((args[0], args[2:]))  # without the indices
    strangers = [each for each in given if not isinstance(each, OnDevice)]
    elementwise = torch.Tag.pointwise in func.tags or func in INDEXING | NUMBERS
    changed = [args[0]] if func._schema.is_mutable else []
    if elementwise and not any(each.dim() for each in strangers) and all(isinstance(t, OnDevice) for t in changed):
        return
    if strangers:
        shapes = ", ".join(str(tuple(each.shape)) for each in strangers)
        raise MixedError(f"{func}: all tensors must be on the same device, but those of shape {shapes} are on the CPU")


def _tensors(values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    tree_map_only(Tensor, found.append, values)
    return found


def _tagged(values: Tensor) -> Tensor:
    return values if isinstance(values, OnDevice) else Tensor._make_subclass(OnDevice, values)


def _plain(values: Tensor) -> Tensor:
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        return values.detach().as_subclass(Tensor)


class _Move(torch.autograd.Function):
    """A copy on the other device, through which gradients pass."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, there: bool) -> Tensor:
        ctx.there = there
        with torch._C._DisableTorchDispatch():
            copied = values.detach().clone().as_subclass(Tensor)
        return _tagged(copied) if there else copied

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return (_plain(gradient) if ctx.there else _tagged(gradient)), None


def moved(values: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device, a copy if it is on the other."""
    there = device.type != "cpu"
    return values if isinstance(values, OnDevice) == there else _Move.apply(values, there)  # type: ignore[no-any-return, no-untyped-call]


class _Factories(TorchFunctionMode):
    """Makes what is asked for on the device there, and moves what is asked to move."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is Tensor.cpu:
            return moved(args[0], torch.device("cpu"))
        if func is Tensor.copy_ and not isinstance(args[0], OnDevice):
            return func(args[0], moved(args[1], torch.device("cpu")), **kwargs)
        if func in WHOLE and any(isinstance(each, OnDevice) for each in _tensors((args, kwargs))):
            return _tagged(func(*tree_map_only(Tensor, _plain, args), **kwargs))
        if func is Tensor.new_tensor and "device" not in kwargs:
            kwargs["device"] = args[0].device
        named = [kwargs.get("device"), *(args[1:2] if func is Tensor.to else ())]
        device = next((each for each in named if isinstance(each, str | torch.device)), None)
        if device is None:
            return func(*args, **kwargs)
        if "device" in kwargs:
            kwargs["device"] = "cpu"  # where the values are
        else:
            args = (args[0], "cpu", *args[2:])
        return moved(func(*args, **kwargs), torch.device(device))


@contextmanager
def accelerator() -> Iterator[torch.device]:
    """Inside, there is one GPU: the stand-in."""
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # the tag is in the class of a parameter
    try:
        with (
            patch("torch.cuda.device_count", lambda: 1),
            patch("torch.cuda.mem_get_info", lambda device: (2**34, 2**34)),
            patch("torch.autocast", lambda kind, dtype, autocast=torch.autocast: autocast("cpu", dtype)),
            patch("torch.cuda.synchronize", lambda device: None),
            patch("torch.cuda.reset_peak_memory_stats", lambda device: None),
            patch("torch.cuda.max_memory_allocated", lambda device: 2**20),
            patch("torch.cuda.get_device_name", lambda device: "stand-in"),
            _Factories(),
        ):
            yield DEVICE
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
