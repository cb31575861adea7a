"""Declaration of command line options, one by one or from the fields of `RunConfig`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import cache
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from dhocl.core.errors import InputError
from dhocl.core.precision import Precision
from dhocl.experiment.config import Named, RunConfig, field_types

Command = Callable[..., None]
OUTPUT = "Output"
PANELS = {  # of `dhocl run --help`
    "Learner": ("method", "backbone", "precision", "buffer", "replay_batch", "settings"),
    "Data": ("dataset", "data", "image_size", "samples", "test_samples", "holdout"),
    "Stream": ("scenario", "groups", "overlap", "split_level", "passes", "batch", "seed"),
    "Knowledge source": ("delay", "vacant", "noise"),
    OUTPUT: ("eval_every", "eval_samples", "decode", "calibrate"),
}
READ_AS: dict[Any, Any] = {  # type of a field -> type that the command line parses
    Named: str,
    str | Path | None: Path | None,
    dict[str, Any]: list[str] | None,
}


def option(*names: str, panel: str, help: str, **more: Any) -> Any:
    """An option in a panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, show_envvar=False, **more)


Device = Annotated[
    str, typer.Option("--device", help="Where to compute: cpu, cuda, cuda:1; auto: a GPU if there is one.")
]

# Options of a model that is made, shared by commands
NEW = "New model"
Tree = Annotated[Path | None, option("--tree", panel=NEW, help="A `tree.tsv` file with the parents of classes.")]
Method = Annotated[str | None, option("--method", panel=NEW, help="A method, as for `dhocl run`; default: amber.")]
BackboneName = Annotated[
    str | None, option("--backbone", panel=NEW, help="A backbone, as for `dhocl run`; default: efficientnet_lite0.")
]
ImageSize = Annotated[
    int | None, option("--image-size", panel=NEW, help="Side in pixels that images are scaled to; default: 96.")
]
PrecisionName = Annotated[
    Precision | None,
    option("--precision", panel=NEW, help="Of the backbone; bfloat16 is mixed precision; default: float32."),
]


def ranks(levels: str) -> list[str] | None:
    """The value of --levels; None if it is empty."""
    names = [level.strip() for level in levels.split(",")] if levels else None
    if names and not all(names):
        raise InputError(f"--levels {levels}: expected names, coarsest first, separated by commas")
    return names


def with_config(command: Command) -> Command:
    """Add an option for each field of `RunConfig` to a command that takes `**config`."""
    context, *own, _ = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [context, *map(_parameter, fields(RunConfig)), *own]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def flag(name: str) -> str:
    """The flag of a field of `RunConfig`."""
    return "--set" if name == "settings" else "--" + name.replace("_", "-")


@cache
def described() -> dict[str, str]:
    """Field of `RunConfig` -> its text in the docstring."""
    arguments = inspect.cleandoc(RunConfig.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]
    texts = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in texts}


def _parameter(field: Field[Any]) -> Parameter:
    name, kind = field.name, field_types()[field.name]
    declared = option(
        flag(name),
        panel=next(panel for panel, names in PANELS.items() if name in names),
        help=described().get(name, ""),
        metavar="NAME" if name == "scenario" else None,  # its choices would fill the column
    )
    default = None if field.default is MISSING else field.default
    annotation = Annotated[READ_AS.get(kind, kind), declared]  # type: ignore[valid-type]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
