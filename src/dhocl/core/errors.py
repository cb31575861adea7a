"""The error for wrong input, and the checks of arguments that raise it."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


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


def lacks_memory(error: BaseException) -> bool:
    """PyTorch raises RuntimeError where Python raises MemoryError. Its other errors may mention memory, too."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    text = str(error).lower()
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(s in text for s in _NO_MEMORY))


_NO_MEMORY = ("out of memory", "not enough memory", "allocate memory", "tried to allocate", "alloc_failed", "bad_alloc")


@contextmanager
def usable(path: Path | str, otherwise: str) -> Iterator[None]:
    """Raise an InputError if the content of a file is not as the block expects, whatever the block raises.

    `otherwise` is what the user can do. Errors of the system and lack of memory are raised as they are.
    """
    try:
        yield
    except (InputError, OSError):
        raise
    except Exception as error:
        if lacks_memory(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:150]
        raise InputError(f"{path} is damaged or of another version ({reason}): {otherwise}") from error
