"""Configurations without the folders of this machine, and the names of runs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from dhocl.core.outside import short
from dhocl.data import DATASETS
from dhocl.experiment.config import RunConfig

HUB = "hub:"


def run_name(config: RunConfig) -> str:
    """A readable name and a hash of the configuration, the same on every machine.

    >>> run_name(RunConfig(method="er", seed=2)) == run_name(RunConfig(method="er", seed=2, data="elsewhere"))
    True
    """
    plain = portable(config)
    defaults = RunConfig().to_json() | {"data": "DIR" if plain.data else None}
    # Defaults are left out, so that a new field does not change the names of old runs.
    chosen = {name: value for name, value in plain.to_json().items() if value != defaults[name]}
    digest = hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]
    return f"{short(config.dataset)}-{short(config.method)}-{config.seed}-{digest}"


def portable(config: RunConfig) -> RunConfig:
    """With placeholders for the places of data and backbone.

    >>> found = portable(RunConfig(dataset="folder", data="/home/me/birds", backbone="hub:/home/me/nets/mine"))
    >>> found.data, found.backbone
    ('DIR/birds', 'hub:FOLDER/mine')
    """
    data = None if config.data is None else portable_data(config.dataset, Path(config.data))
    return dataclasses.replace(config, data=data, backbone=portable_backbone(config.backbone))


def portable_data(dataset: str, data: Path) -> str:
    """The name of the folder is kept if its content is the user's own."""
    return f"DIR/{data.absolute().name}" if own(dataset) else "DIR"


def own(dataset: str) -> bool:
    """Whether the images are the user's own, not a published data set."""
    return dataset not in DATASETS or not DATASETS[dataset].title


def portable_backbone(name: str) -> str:
    path = Path(name.removeprefix(HUB))
    return f"{HUB}FOLDER/{path.name}" if name.startswith(HUB) and path.is_absolute() else name


def absolute_backbone(name: str) -> str:
    """A local folder of `hub:` by its absolute path, which differs from all names of the hub."""
    path = Path(name.removeprefix(HUB))
    return f"{HUB}{path.absolute()}" if name.startswith(HUB) and path.is_dir() else name
