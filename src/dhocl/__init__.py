"""Online continual learning with label hierarchies that grow."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dhocl.classifier import Classifier, Guess, Prediction
    from dhocl.errors import InputError
    from dhocl.taxonomy import Label, Taxonomy

__all__ = ["Classifier", "Guess", "InputError", "Label", "Prediction", "Taxonomy"]
__version__ = "0.1.0"

_HOMES = {
    "Classifier": "classifier",
    "Guess": "classifier",
    "Prediction": "classifier",
    "InputError": "errors",
    "Label": "taxonomy",
    "Taxonomy": "taxonomy",
}


def __getattr__(name: str) -> Any:
    """Names are imported when first used: `dhocl --help` need not wait for PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dhocl' has no attribute {name!r}")
    return getattr(import_module(f"dhocl.{_HOMES[name]}"), name)
