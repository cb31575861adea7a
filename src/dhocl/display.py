"""What a person sees while a run goes on, and at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from dhocl.config import RunConfig
from dhocl.record import Record
from dhocl.run import Progress


def watch(progress: Iterator[Progress], config: RunConfig, folder: Path, quiet: bool) -> None:
    """Drive a run to its end, showing where it stands."""
    if quiet:
        for _ in progress:
            pass
        return
    console = Console()
    console.print(f"[bold]{config.method}[/bold] on [bold]{config.dataset}[/bold], seed {config.seed} → {folder}")
    if console.is_terminal:
        _live(progress, config, console)
    else:
        _lines(progress, config, console)
    console.print(result_table(Record(folder), config))


def _live(progress: Iterator[Progress], config: RunConfig, console: Console) -> None:
    bar = Bar(
        TextColumn("{task.completed:>6}/{task.total} samples"),
        BarColumn(),
        TextColumn("{task.fields[rate]:.0f}/s"),
        TimeRemainingColumn(),
        console=console,
    )
    task = bar.add_task("", total=None, rate=0.0)
    scores: dict[str, Any] = {}
    levels: list[str] = []
    with Live(Group("preparing the data and the backbone ..."), console=console, refresh_per_second=4) as live:
        shown = 0.0
        for now in progress:
            levels = levels or _level_names(now)
            scores = now.scores or scores
            bar.update(task, total=now.total, completed=now.samples, rate=now.rate)
            if now.scores or time.monotonic() - shown > 0.25:
                live.update(Group(bar, _standing(now, scores, config)))
                shown = time.monotonic()


def _lines(progress: Iterator[Progress], config: RunConfig, console: Console) -> None:
    """Where nobody watches: a line per evaluation."""
    began = time.monotonic()
    for now in progress:
        if now.scores:
            judged = now.scores["path"] if config.decode == "path" else now.scores
            levels = "  ".join(f"{value:5.1f}" for value in judged["level_accuracy"].values())
            left = (time.monotonic() - began) / now.samples * (now.total - now.samples)
            console.print(
                f"{now.samples:>6}/{now.total}  {now.rate:5.0f}/s  {left:4.0f} s left   accuracy per level {levels}   "
                f"MS {judged.get('ms', float('nan')):.2f}   classes {len(now.taxonomy)}, "
                f"unanchored {len(now.taxonomy.unanchored)}",
                soft_wrap=True,
            )


def _level_names(now: Progress) -> list[str]:
    return [str(level) for level in now.taxonomy.levels]


def _standing(now: Progress, scores: dict[str, Any], config: RunConfig) -> RenderableType:
    """Level by level: what is known, and how well."""
    judged = (scores.get("path") if config.decode == "path" else scores) or {}
    table = Table(box=None, header_style="bold")
    for column in ("level", "classes", "accuracy %"):
        table.add_column(column, justify="right")
    for level, width in now.taxonomy.widths.items():
        accuracy = judged.get("level_accuracy", {}).get(str(level))
        table.add_row(str(level), str(width), "-" if accuracy is None else f"{accuracy:.1f}")
    unanchored = len(now.taxonomy.unanchored)
    return Group(table, f"{len(now.taxonomy.levels)} levels, {len(now.taxonomy)} classes, {unanchored} unanchored")


def result_table(record: Record, config: RunConfig) -> Table:
    """The paper's five numbers, plain and path-consistent, and the accuracy of each level at the end."""
    summary, names = record.summary(), record.describe()["levels"]
    table = Table(title=f"{config.method} on {config.dataset}", title_justify="left")
    table.add_column("decoding")
    prefixes = {"level by level": "", "consistent paths": "path."}
    if config.decode == "path":
        prefixes = dict(reversed(prefixes.items()))
    for name in ("AAUC", "FAUC", "MS", "FFAcc", "FAAcc"):
        table.add_column(name + (" ↓" if name == "MS" else ""), justify="right")
    levels = sorted(summary["level_accuracy"], key=int)
    for level in levels:
        table.add_column(names[int(level)], justify="right")
    for title, prefix in prefixes.items():
        five = [
            f"{summary[prefix + 'AAUC']:.1f}",
            f"{summary[prefix + 'FAUC']:.1f}",
            f"{summary[prefix + 'MS']:.2f}",
        ]
        five += [_percent(summary[prefix + "FFAcc"]), _percent(summary[prefix + "FAAcc"])]
        table.add_row(title, *five, *(_percent(summary[prefix + "level_accuracy"][level]) for level in levels))
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
