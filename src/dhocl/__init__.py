"""Online continual learning with label hierarchies that grow.

Images arrive once, each labelled at one level of a taxonomy. The taxonomy grows while they arrive.

    >>> import numpy as np
    >>> from dhocl import Classifier
    >>> images = np.random.default_rng(0).integers(256, size=(4, 32, 32, 3), dtype=np.uint8)
    >>> labels = [("robin", "species"), ("wren", "species"), ("bird", "kind"), ("bird", "kind")]
    >>> classifier = Classifier(["kind", "species"], method="acil", backbone="tiny", image_size=32)
    >>> classifier.learn(images, labels)
    >>> classifier.link(("robin", "species"), ("bird", "kind"))
    >>> classifier.predict(images[0])[0].path
    {'kind': 'bird', 'species': 'robin'}

| to                                    | use                                                         |
|---------------------------------------|-------------------------------------------------------------|
| learn and predict your own images     | `Classifier`; returns `Prediction`, `Guess`, `Evaluation`    |
| feed tensors instead                  | `Model`, `ModelConfig`, `Revision`                          |
| look at the tree                      | `Taxonomy`, `Label`                                         |
| run an experiment                     | `RunConfig` with `run_to_end`, or `run` step by step        |
| run many                              | `sweep`                                                     |
| choose or write a method              | `METHODS`, `Learner`, `checks`                              |
| use a network of your own             | `backbones`, with `backbones.wrap`                          |
| catch a mistake in what was given     | `InputError`                                                |

The command `dhocl --help` offers the same from a shell.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dhocl import checks
    from dhocl.classifier import Classifier, Evaluation, Guess, Prediction
    from dhocl.core.errors import InputError
    from dhocl.core.taxonomy import Label, Taxonomy
    from dhocl.experiment.config import RunConfig
    from dhocl.experiment.run import run, run_to_end
    from dhocl.experiment.sweep import sweep
    from dhocl.methods import METHODS
    from dhocl.model import Model, ModelConfig, Revision
    from dhocl.nn import backbones
    from dhocl.nn.learner import Learner

_HOMES = {
    "METHODS": "methods",
    "Classifier": "classifier",
    "Evaluation": "classifier",
    "Guess": "classifier",
    "InputError": "core.errors",
    "Label": "core.taxonomy",
    "Learner": "nn.learner",
    "Model": "model",
    "ModelConfig": "model",
    "Prediction": "classifier",
    "Revision": "model",
    "RunConfig": "experiment.config",
    "Taxonomy": "core.taxonomy",
    "backbones": "nn",
    "checks": "",
    "run": "experiment.run",
    "run_to_end": "experiment.run",
    "sweep": "experiment.sweep",
}
__all__ = [  # as _HOMES has them
    "METHODS",
    "Classifier",
    "Evaluation",
    "Guess",
    "InputError",
    "Label",
    "Learner",
    "Model",
    "ModelConfig",
    "Prediction",
    "Revision",
    "RunConfig",
    "Taxonomy",
    "backbones",
    "checks",
    "run",
    "run_to_end",
    "sweep",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `dhocl --help` need not wait for PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dhocl' has no attribute {name!r}")
    home = f"dhocl.{_HOMES[name]}".rstrip(".")
    if name in ("backbones", "checks"):
        return import_module(f"{home}.{name}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
