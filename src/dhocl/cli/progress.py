"""Progress of work on many images: a bar in a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PAUSE = 10.0  # seconds between lines

T = TypeVar("T")


@contextmanager
def progress(what: str, total: int, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the number of images done so far. Output goes to stderr."""
    console = Console(stderr=True)
    if quiet:
        yield lambda done: None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)
    else:
        yield _Lines(what, total)


def result_of(steps: Iterable[int | T], show: Callable[[int], None]) -> T | None:
    """What work yields at its end. Before, it yields the number of images done. None: it yields nothing else."""
    result = None
    for now in steps:
        if isinstance(now, int):
            show(now)
        else:
            result = now
    return result


class _Lines:
    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._began = self._last = time.monotonic()

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if done and now - self._last >= PAUSE:
            self._last = now
            left = (now - self._began) / done * (self._total - done)
            rate = done / (now - self._began)
            Console(stderr=True).print(
                f"{self._what}: {done}/{self._total}, {rate:.0f}/s, {duration(left)} left", highlight=False
            )


def duration(seconds: float) -> str:
    """
    >>> duration(5), duration(125), duration(7300)
    ('5 s', '2 min', '2 h 2 min')
    """
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
