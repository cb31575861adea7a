"""The command that repeats a run."""

from __future__ import annotations

import dataclasses
import shlex

from dhocl.experiment.config import RunConfig


def command(config: RunConfig) -> str:
    """A shell command with the options that differ from the defaults.

    >>> command(RunConfig(method="er", data="my data", holdout=True, settings={"lr_heads": 0.01}))
    "dhocl run --method er --data 'my data' --holdout --set lr_heads=0.01"
    """
    words = ["dhocl", "run"]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name == "settings" or value == field.default:
            continue
        flag = "--" + field.name.replace("_", "-")
        words += [flag] if value is True else [flag, str(value)]
    for key, value in config.settings.items():
        words += ["--set", f"{key}={value}"]
    return shlex.join(words)
