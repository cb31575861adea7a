"""Progress and results of runs and sweeps in the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.progress_bar import ProgressBar
from rich.table import Table

from dhocl.cli.progress import duration
from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import POPULATIONS, Scores
from dhocl.experiment.record import Record
from dhocl.experiment.run import Progress
from dhocl.experiment.sweep import Begun, Ended, Event, Job, Underway


def watch(progress: Iterator[Progress], config: RunConfig, folder: Path, quiet: bool) -> None:
    """Run to the end, and display progress and results."""
    if quiet:
        for _ in progress:
            pass
        return
    console = Console()
    console.print(f"{config.method} on {config.dataset}, seed {config.seed} → {folder}", markup=False, soft_wrap=True)
    first = list(islice(progress, 1))  # reading the data shows its own progress; a resumed run may have no batch left
    record = Record(folder)
    show = _live if console.is_terminal else _lines
    show(chain(first, progress), config, record.describe()["levels"], console)
    console.print(result_table(record, config))


def _live(progress: Iterator[Progress], config: RunConfig, names: list[str], console: Console) -> None:
    bar = Bar(
        TextColumn("{task.completed:>6}/{task.total} samples"),
        BarColumn(),
        TextColumn("{task.fields[rate]:.0f}/s"),
        TimeRemainingColumn(),
        console=console,
    )
    task = bar.add_task("", total=None, rate=0.0)
    scores: Scores = {}
    with Live(bar, console=console, refresh_per_second=4) as live:
        for now in progress:
            scores = now.scores or scores
            bar.update(task, total=now.total, completed=now.samples, rate=now.rate)
            live.update(Group(bar, _level_table(now, scores, config, names)))


def _lines(progress: Iterator[Progress], config: RunConfig, names: list[str], console: Console) -> None:
    """Without a terminal: a line per evaluation."""
    began = time.monotonic()
    done = 0
    for now in progress:
        done = done or now.samples
        if now.scores:
            shown = _shown(now.scores, config)
            levels = ", ".join(f"{names[int(h)]} {value:.1f}" for h, value in shown["level_accuracy"].items())
            left = (time.monotonic() - began) / max(1, now.samples - done) * (now.total - now.samples)
            console.print(
                f"{now.samples:>6}/{now.total}  {now.rate:.0f}/s  {left:.0f} s left  accuracy: {levels}  "
                f"MS {_number(shown.get('ms'), 2)}  classes {len(now.taxonomy)}, "
                f"unanchored {len(now.taxonomy.unanchored)}",
                soft_wrap=True,
                highlight=False,
            )


def _level_table(now: Progress, scores: Scores, config: RunConfig, names: list[str]) -> RenderableType:
    """Known classes and accuracy of each level."""
    shown = _shown(scores, config)
    table = Table(box=None, header_style="bold")
    for column in ("level", "classes known", "accuracy %"):
        table.add_column(column, justify="left" if column == "level" else "right")
    for level, width in now.taxonomy.widths.items():
        table.add_row(names[level], str(width), _number(shown.get("level_accuracy", {}).get(str(level))))
    known = f"{len(now.taxonomy)} classes on {len(now.taxonomy.levels)} levels"
    severity = f", mistake severity {shown['ms']:.2f}" if "ms" in shown else ""
    return Group(table, f"{known}, {len(now.taxonomy.unanchored)} unanchored{severity}")


def _shown(scores: Scores, config: RunConfig) -> dict[str, Any]:
    return scores.get("path", {}) if config.decode == "path" else scores


def result_table(record: Record, config: RunConfig) -> Table:
    """The five metrics of the paper and the last accuracy of each level, for both populations and both decodings."""
    summary, names = record.summary(), record.describe()["levels"]
    meanings = "\n".join(f"{name or 'streamed'}: {meaning}" for name, meaning in POPULATIONS.items())
    table = Table(title=f"{config.method} on {config.dataset}", title_justify="left", box=None, pad_edge=False)
    table.caption, table.caption_justify = meanings, "left"
    table.add_column("test images", no_wrap=True)
    decodings = {"by level": "", "by path": "path."}
    if config.decode == "path":
        decodings = dict(reversed(decodings.items()))
    levels = sorted(summary["level_accuracy"], key=int)
    for name in ("AAUC", "FAUC", "MS ↓", "FFAcc", "FAAcc"):
        table.add_column(name, justify="right", no_wrap=True)
    for level in levels:
        table.add_column(names[int(level)], justify="right", overflow="fold")
    for population, (title, decoding) in product(POPULATIONS, decodings.items()):
        prefix = f"{population}.{decoding}" if population else decoding
        digits = {"AAUC": 1, "FAUC": 1, "MS": 2, "FFAcc": 1, "FAAcc": 1}
        five = [_number(summary[prefix + name], places) for name, places in digits.items()]
        last = [_number(summary[prefix + "level_accuracy"].get(level)) for level in levels]
        table.add_row(f"{population or 'streamed'}, {title}", *five, *last)
    return table


def _number(value: float | None, places: int = 1) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def watch_sweep(events: Iterator[Event], jobs: Sequence[Job], quiet: bool) -> list[Ended]:
    """Run a sweep to its end, and display its progress. Returns the jobs that failed, and why."""
    console = Console(quiet=quiet)
    status = Status(len(jobs))
    if console.is_terminal and not quiet:
        with Live(status, console=console, refresh_per_second=4):
            for event in events:
                status.update(event)
    else:
        for event in events:
            status.update(event)
            if isinstance(event, Ended):
                console.print(f"{event.job.folder.name}: {status.last}  ({status})", highlight=False, soft_wrap=True)
    console.print(str(status), highlight=False)
    return status.failed


class Status:
    """Numbers of finished, running and failed runs, and an estimate of the remaining time."""

    def __init__(self, jobs: int) -> None:
        self.failed: list[Ended] = []
        self.last = ""
        self._jobs = jobs
        self._done = 0
        self._shares: dict[str, float] = {}  # name of each active run -> finished fraction
        self._began = time.monotonic()

    def update(self, event: Event) -> None:
        name = event.job.folder.name
        if isinstance(event, Begun):
            self._shares[name] = 0.0
        elif isinstance(event, Underway):
            self._shares[name] = event.samples / event.total
        else:
            self._shares.pop(name, None)
            self._done += event.problem is None
            self.last = "done" if event.problem is None else f"failed: {event.reason}"
            if event.problem is not None:
                self.failed.append(event)

    def __str__(self) -> str:
        worked = self._done + len(self.failed) + sum(self._shares.values())
        left = (time.monotonic() - self._began) / worked * (self._jobs - worked) if worked else None
        parts = [
            f"{self._done} of {self._jobs} runs done",
            f"{len(self._shares)} running",
            f"{len(self.failed)} failed",
        ]
        if left:
            parts.append(f"{duration(left)} left")
        return ", ".join(parts)

    def __rich__(self) -> RenderableType:
        table = Table(box=None, show_header=False)
        for name, share in self._shares.items():
            table.add_row(name, ProgressBar(total=1, completed=share, width=30), f"{100 * share:3.0f} %")
        for event in self.failed[-3:]:
            table.add_row(f"[red]failed[/red] {event.job.folder.name}")
        return Group(table, str(self))
