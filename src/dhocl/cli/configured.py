"""Options of a command from a TOML file and from environment variables: flag > environment > file > default."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import typer

from dhocl.core.errors import InputError


def read_config(context: typer.Context, file: Path | None) -> Path | None:
    """Callback of --config: check the environment and the file, and use the values of the file as defaults."""
    options = [option for option in context.command.params if option.name not in ("config", "help")]
    _check_environment(context, options)
    if file is not None:
        context.default_map = _defaults(context, options, file)
    return file


def _check_environment(context: typer.Context, options: list[Any]) -> None:
    """InputError for a value that can not be used, or a variable of no option. Typer reads the values."""
    prefix = f"{context.auto_envvar_prefix}_"
    known = {prefix + option.name.upper(): option for option in options}
    for name, value in os.environ.items():
        if not name.startswith(prefix) or name == f"{prefix}CONFIG":
            continue
        if name not in known:
            raise InputError(f"unknown environment variable {name}: use one of {', '.join(known)}")
        if value:
            _check(context, known[name], value.split() if known[name].multiple else value, f"{name}={value}")


def _defaults(context: typer.Context, options: list[Any], file: Path) -> dict[str, Any]:
    """Option -> value in the file."""
    known = {option.opts[0].removeprefix("--"): option for option in options}
    defaults = {}
    for key, value in _parsed(file).items():
        if key not in known:
            raise InputError(f"{file}: unknown key {key}: use one of {', '.join(known)}")
        given = _as_given(value)
        _check(context, known[key], given, f"{file}: {key} = {value!r}")
        defaults[known[key].name] = given
    return defaults


def _parsed(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--config {file} can not be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"--config {file} is not TOML: {error}") from None


def _as_given(value: Any) -> Any:
    """A value of TOML as a flag would give it."""
    if isinstance(value, list):
        return [_as_given(item) for item in value]
    return value if isinstance(value, bool) else str(value)


def _check(context: typer.Context, option: Any, value: Any, shown: str) -> None:
    if isinstance(value, list) != option.multiple or (isinstance(value, bool) and not option.is_flag):
        raise InputError(f"{shown}: expected {'a list' if option.multiple else 'one value'}, as for {option.opts[0]}")
    try:
        option.process_value(context, value)
    except typer.BadParameter as error:
        raise InputError(f"{shown}: {error.message}") from None
