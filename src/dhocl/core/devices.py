"""Where a model computes: on the CPU or on a GPU."""

from __future__ import annotations

import torch

from dhocl.core.errors import InputError

Device = torch.device | str


def find_device(name: Device = "auto") -> torch.device:
    """The device with a name: `cpu`, `cuda`, `cuda:1`; `auto` is the first GPU, or the CPU if there is none.

    >>> find_device("cpu")
    device(type='cpu')
    """
    gpus = torch.cuda.device_count()
    named = str(name) if name != "auto" else "cuda" if gpus else "cpu"
    known = {"cpu": torch.device("cpu"), **{f"cuda:{number}": torch.device("cuda", number) for number in range(gpus)}}
    if gpus:
        known["cuda"] = known["cuda:0"]
    if named not in known:
        there = "are no GPUs that PyTorch can use" if not gpus else "is 1 GPU" if gpus == 1 else f"are {gpus} GPUs"
        raise InputError(f"`device` {name}: there {there} here; choose one of auto, {', '.join(known)}")
    return known[named]
