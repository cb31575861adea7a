"""`dhocl sweep`: run the experiments of the paper."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console


def sweep(
    recipes: Annotated[list[str], typer.Argument(help="Names from `dhocl list recipes`, or `all`.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder with the archives or the extracted files of the data sets.")
    ] = None,
    backbone: Annotated[
        list[str] | None,
        typer.Option(
            help="For rows that do not name one, such as hub:FOLDER: `backbones` takes any number, by repeating this; "
            "`imagenet_h` at paper scale needs one."
        ),
    ] = None,
    scale: Annotated[
        Literal["smoke", "mini", "full", "paper"],
        typer.Option(
            help="smoke: only checks that everything runs, in minutes, without data; mini: a part of CIFAR-100, "
            "CUB-200 and glyphs, for 2 cores; full: all of them; paper: the setting of the paper, on all data sets."
        ),
    ] = "smoke",
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of seeds; default: 1 for smoke, 2 for mini, 3 for full, 5 for paper."),
    ] = None,
    first_seed: Annotated[int, typer.Option(min=0, help="Seeds count from here.")] = 0,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only runs of this method now, others can follow later; repeat it for several."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="Only runs on this data set now, which may be any, also `folder`; repeat it for several."),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="local: processes on this machine; ray: tasks on a Ray cluster.")
    ] = "local",
    workers: Annotated[
        int, typer.Option(min=0, help="Parallel runs; 0: one per GPU, or per core; on a cluster as many as fit.")
    ] = 0,
    address: Annotated[
        str | None, typer.Option(help="Address of a running Ray cluster; default: one is started on this machine.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for runs and report; default: runs/SCALE.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No output except errors.")] = False,
) -> None:
    """Run experiments of the paper, and write their tables and figures.

    A sweep can be stopped and started again: finished runs are kept and unfinished ones resumed. Recipes in the same
    folder share runs. To run everything at the smallest scale, in a few minutes: `dhocl sweep all`
    """
    from dhocl.cli.display import watch_sweep
    from dhocl.experiment.recipes import SEEDS, Scale
    from dhocl.experiment.sweep import FAILED, prepare, start
    from dhocl.report import write_sweep_report

    size = Scale(scale)
    folder = out or Path("runs") / size
    each = range(first_seed, first_seed + (seeds or SEEDS[size]))
    jobs = prepare(folder, recipes, size, each, data, backbone or [], method or [], dataset or [])
    try:
        failed = watch_sweep(start(jobs, engine, workers, address), jobs, quiet)
    except KeyboardInterrupt:
        print("dhocl: stopped; run the same command to continue", file=sys.stderr)
        raise typer.Exit(130) from None
    page = write_sweep_report(folder)
    if not quiet:
        Console().print(f"Report: {page}", soft_wrap=True, markup=False)
    if failed:
        told = failed[0].job.folder / FAILED
        first = f"for the first, see {told}" if told.exists() else f"the first: {failed[0].reason}"
        print(f"dhocl: {len(failed)} of {len(jobs)} runs failed; {first}", file=sys.stderr)
        raise typer.Exit(1)
