"""`dhocl sweep`: the experiments of the paper."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


class Engine(StrEnum):
    local = "local"
    ray = "ray"


class Size(StrEnum):  # `recipes.Scale`, which would bring torch along
    smoke = "smoke"
    mini = "mini"
    paper = "paper"


def sweep(
    recipes: Annotated[list[str], typer.Argument(help="One or more of `dhocl list recipes`, or `all`.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder with the archives or extracted files of the data sets.")
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="Only for recipes that leave it to you (imagenet_h at paper scale): hub: and a folder."),
    ] = None,
    scale: Annotated[
        Size,
        typer.Option(help="smoke: minutes, nothing needed; mini: CIFAR-100 and CUB-200 on 2 cores; paper: all of it."),
    ] = Size.smoke,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds 0 to N-1; by default 1 at smoke, 2 at mini, 5 at paper.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="Processes of this machine, or tasks of a Ray cluster.")
    ] = Engine.local,
    workers: Annotated[
        int, typer.Option(min=0, help="Runs at a time; by default one per core, on a cluster as many as fit.")
    ] = 0,
    address: Annotated[
        str | None, typer.Option(help="Of a running Ray cluster; without it one is started here.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for runs and report; runs/SCALE by default.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No display; errors are still told.")] = False,
) -> None:
    """Make the runs of an experiment of the paper, then its tables and figures.

    Stop it at any time and call it again: finished runs are kept, half-done ones go on. Recipes that share a folder
    share runs. `dhocl sweep all` is everything at the smallest scale, in a few minutes.
    """
    from dhocl.display import watch_sweep
    from dhocl.recipes import SEEDS, Scale
    from dhocl.report import write_sweep_report
    from dhocl.sweep import prepare, start

    size = Scale(scale.value)
    folder = out or Path("runs") / size
    jobs = prepare(folder, recipes, size, seeds or SEEDS[size], data, backbone)
    try:
        failed = watch_sweep(start(jobs, engine.value, workers, address), jobs, quiet)
    except KeyboardInterrupt:
        print("dhocl: stopped; the same command goes on from here", file=sys.stderr)
        raise typer.Exit(130) from None
    page = write_sweep_report(folder)
    if not quiet:
        Console().print(f"Open {page} to see it.", soft_wrap=True, markup=False)
    if failed:
        print(
            f"dhocl: {len(failed)} of {len(jobs)} runs failed; the first: {failed[0].folder / 'FAILED'}",
            file=sys.stderr,
        )
        raise typer.Exit(1)
