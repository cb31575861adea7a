"""State dicts, to compare them bit for bit."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def values(state: Any, name: str = "") -> dict[str, Any]:
    """Everything in nested dicts by name: tensors as lists, numbers and texts as they are."""
    if isinstance(state, dict):
        return {key: value for part, inner in state.items() for key, value in values(inner, f"{name}/{part}").items()}
    return {name: (str(state.dtype), state.tolist()) if isinstance(state, Tensor) else state}
