"""The error for wrong input, and the checks of arguments that raise it."""

from __future__ import annotations

from collections.abc import Iterable


class InputError(ValueError):
    """Wrong input that the user can correct. The message says what, where and what to do.

    The command line prints it as one line and exits with code 2. Any other exception is a bug. The name of an argument
    is written as `name`; the command line shows the flag instead.
    """


def check_least(name: str, value: float, least: float) -> None:
    if value < least:
        raise InputError(f"`{name}` {value}: at least {least}")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    if value not in (known := list(choices)):
        raise InputError(f"`{name}` {value}: one of {', '.join(known)}")
