"""Declaration of command line options, one by one or from the fields of `RunConfig`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from inspect import Parameter
from pathlib import Path
from typing import Any

import typer

from dhocl.experiment import config
from dhocl.experiment.config import RunConfig

Command = Callable[..., None]
READ_AS: dict[Any, Any] = {  # type of a field -> type that the command line parses
    config.Named: str,
    str | Path | None: Path | None,
    dict[str, Any]: list[str] | None,
}


def option(*names: str, panel: str, help: str, **more: Any) -> Any:
    """An option in a panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def with_config(command: Command) -> Command:
    """Add an option for each field of `RunConfig` to a command that takes `**config`."""
    context, *own, _ = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [context, *map(_parameter, fields(RunConfig)), *own]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def flag(name: str) -> str:
    """The flag of a field of `RunConfig`."""
    return config.options()[name][1].flag or "--" + name.replace("_", "-")


def _parameter(field: Field[Any]) -> Parameter:
    kind, shown = config.options()[field.name]
    default = None if field.default is MISSING else field.default
    declared = typer.Option(
        default, flag(field.name), help=shown.help, rich_help_panel=shown.panel, metavar=shown.metavar
    )
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=declared, annotation=READ_AS.get(kind, kind))
