"""Finds methods: built in, `module:Class`, or an entry point of an installed package."""

from __future__ import annotations

import inspect
import types
import typing
from dataclasses import fields
from typing import Any, Literal

from dhocl.core import outside
from dhocl.core.errors import InputError
from dhocl.core.settings import Settings
from dhocl.methods import METHODS, Method
from dhocl.nn.learner import Learner


def find_method(method: str | type[Learner]) -> Method:
    """The method with a name: one of METHODS, `module:Class`, or an entry point of an installed package.

    Another class declares its settings by an annotation in its body, `settings: MySettings`, or of its second argument:
    `__init__(self, setup: Setup, settings: MySettings)`. MySettings is a dataclass derived from `Settings`. A subclass
    without either has those of its parent.

    >>> find_method("dhocl.methods.er:ER").settings.__name__
    'ReplaySettings'
    """
    if isinstance(method, str) and method in METHODS:
        return METHODS[method]
    learner = outside.find(method, "method", METHODS) if isinstance(method, str) else method
    name = getattr(learner, "__qualname__", method)
    if not (isinstance(learner, type) and issubclass(learner, Learner)):
        raise InputError(f"{name} is not a Learner: a method is a class derived from dhocl.nn.learner.Learner")
    settings = _stated_settings(learner)
    if not (isinstance(settings, type) and issubclass(settings, Settings)):
        raise InputError(
            f"the settings of {name} are unknown: write `settings: MySettings` in its body, where MySettings is a "
            "dataclass derived from dhocl.core.settings.Settings"
        )
    return Method(learner, settings, outside.first_line(learner), learner.__module__)


def _stated_settings(learner: type[Learner]) -> Any:
    """Of the class that states them, or of its nearest parent that does. None if they can not be evaluated."""
    try:
        for kind in learner.__mro__:
            if "settings" in inspect.get_annotations(kind):
                return typing.get_type_hints(kind)["settings"]
            if "__init__" in vars(kind):
                arguments = list(inspect.signature(learner.__init__).parameters)[2:]
                return typing.get_type_hints(learner.__init__).get(arguments[0]) if arguments else None
    except NameError:  # the name is imported for type checkers only
        pass
    return None


def method_settings(method: str | type[Learner], given: dict[str, Any]) -> Settings:
    """The method's settings with these values; strings are converted to the type of the setting.

    >>> method_settings("halo", {"hpr": "false", "lambda": "0.5"}).lambda_
    0.5
    """
    settings = find_method(method).settings
    kinds = typing.get_type_hints(settings)
    names = {field.name.rstrip("_"): field.name for field in fields(settings)}  # `lambda` is a keyword of Python
    unknown = given.keys() - names.keys()
    if unknown:
        raise InputError(f"{method} has no setting {min(unknown)!r}: choose one of {', '.join(sorted(names))}")
    return settings(**{names[key]: _read(key, value, kinds[names[key]]) for key, value in given.items()})


def _read(key: str, value: Any, kind: Any) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if typing.get_origin(kind) is Literal:
            return {str(choice): choice for choice in typing.get_args(kind)}[str(value)]
        if isinstance(kind, types.UnionType):  # X | None
            return None if str(value).lower() == "none" else _read(key, value, typing.get_args(kind)[0])
        return kind(value)
    except (ValueError, KeyError):
        choices = ("true", "false") if kind is bool else typing.get_args(kind)
        hint = f"one of {', '.join(map(str, choices))}" if choices else f"a value of type {kind.__name__}"
        raise InputError(f"`settings` {key}={value}: expected {hint}") from None
