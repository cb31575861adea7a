"""Methods, data sets and backbones from other packages: by `module:name` or by entry point.

The entry point groups are `dhocl.methods`, `dhocl.datasets` and `dhocl.backbones`. An entry point is imported when it
is used or listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any

from dhocl.core.errors import InputError

Named = str | Callable[..., Any]  # a name, `module:name`, or the class or function itself


def spell(thing: Named) -> str:
    """`module:name` of a class or function, by which another process imports it. A name is returned unchanged.

    >>> spell(InputError), spell("er")
    ('dhocl.core.errors:InputError', 'er')
    """
    if isinstance(thing, str):
        return thing
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if module is None or name is None:
        raise InputError(
            f"{type(thing).__name__} is neither a class nor a function, so it can not be stored with a run: give a "
            "function that makes it"
        )
    if module == "__main__" or "<" in name:
        place = "__main__" if module == "__main__" else "a function"
        raise InputError(f"{name} is defined in {place}, where no other process finds it: move it to a module file")
    return f"{module}:{name}"


def short(thing: Named) -> str:
    """The part after the colon, for names of folders.

    >>> short("mypackage.mymodule:MyMethod"), short("er")
    ('MyMethod', 'er')
    """
    return spell(thing).rpartition(":")[2]


def find(name: str, what: str, known: Iterable[str]) -> Any:
    """The object of `module:name` or of an entry point. `what` is "method", "data set" or "backbone".

    >>> find("dhocl.core.errors:InputError", "method", [])
    <class 'dhocl.core.errors.InputError'>
    """
    if ":" in name:
        return _imported(name)
    points = _announced(what)
    if name not in points:
        choices = ", ".join(dict.fromkeys([*known, *points]))
        raise InputError(f"there is no {what} {name!r}: choose one of {choices}, or your own by module:name")
    return _imported(f"{points[name].module}:{points[name].attr}")


def first_line(thing: Any) -> str:
    """The first line of the docstring, shown by `dhocl list`."""
    return (thing.__doc__ or "").strip().partition("\n")[0]


def announced(what: str, known: Iterable[str], find: Callable[[str], Any]) -> Iterator[tuple[str, str, str]]:
    """Name, summary and package of each entry point, also if it fails to load. Built-in names take precedence."""
    for name, point in _announced(what).items():
        if name in known:
            continue
        try:
            summary: str = find(name).summary
        except Exception as error:  # the module of another package may raise anything
            summary = f"can not be loaded: {type(error).__name__}: {' '.join(str(error).split())}"
        yield name, summary, point.dist.name if point.dist else "-"


def _announced(what: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"dhocl.{what.replace(' ', '')}s")}


def _imported(name: str) -> Any:
    if not re.fullmatch(r"\w[\w.]*:\w[\w.]*", name):
        raise InputError(f"{name} is not of the form module:name, such as mypackage.mymodule:MyMethod")
    home, _, path = name.partition(":")
    try:
        module = import_module(home)
    except ImportError as error:
        raise InputError(
            f"{name} can not be imported: {error}; run from the folder that holds the module, or install its package"
        ) from error
    try:
        return attrgetter(path)(module)
    except AttributeError:
        raise InputError(f"{name}: {getattr(module, '__file__', home)} has no {path!r}") from None
