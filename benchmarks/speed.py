"""Speed of dhocl, and its overhead over the arithmetic that can not be avoided.

    python benchmarks/speed.py [--quick] [--json FILE] [--data DIR]

The two sides of a comparison are measured alternately in one process and created several times. A ratio is the median
over all turns. Two threads are used. With --data the whole run uses CIFAR-100, else `glyphs` of the same size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import growth
import halo_step
import host_cost
import torch
import typer
import whole_run
from rich.console import Console
from timing import Row

from dhocl.core.process import keep_freed_memory

THREADS = 2


def breakdown(quick: bool) -> list[Row]:
    told = []
    for classes, levels in ((100, 3), (1000, 7)):
        shares = halo_step.breakdown(classes, levels, 3 if quick else 10)
        text = ", ".join(f"{name} {100 * share:.1f}" for name, share in shares.items() if share >= 0.0005)
        numbers = {f"share_{classes}x{levels}.{name}": share for name, share in shares.items()}
        told.append(Row(f"where HALO's step goes, %, {classes:,} classes, {levels} levels", text, numbers))
    return told


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer turns, smaller sizes: three minutes.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the numbers here.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with CIFAR-100.")] = None,
) -> None:
    """Measure, and print each line of a Markdown table when it is ready."""
    torch.set_num_threads(THREADS)
    keep_freed_memory()  # as a run does
    numbers: dict[str, float] = {}
    print("| what | measured |\n|---|---|")
    for row in rows(quick, data):
        print(f"| {row.what} | {row.value} |", flush=True)
        numbers |= row.json
        if json_file:
            json_file.write_text(json.dumps(numbers, indent=1) + "\n")


def rows(quick: bool, data: Path | None) -> Iterator[Row]:
    parts: list[Callable[[bool], list[Row]]] = [
        host_cost.measure,
        halo_step.rows,
        breakdown,
        lambda quick: whole_run.evaluation(quick, data),
        growth.steps,
        growth.taxonomy,
        growth.one_by_one,
        growth.memory,
        growth.alignment,
        whole_run.side_by_side,
    ]
    console = Console(stderr=True)
    for number, part in enumerate(parts, 1):
        with console.status(f"part {number} of {len(parts)}"):
            found = part(quick)
        yield from found


if __name__ == "__main__":
    typer.run(main)
