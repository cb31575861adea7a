"""Sweeps: many runs, planned by recipes and executed by an engine that yields events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import torch

from dhocl.core.errors import InputError, check_choice, check_least
from dhocl.experiment.recipes import SEEDS, Scale
from dhocl.experiment.sweep.events import Begun, Ended, Event, Underway
from dhocl.experiment.sweep.folder import Job, SweepFolder
from dhocl.experiment.sweep.naming import portable
from dhocl.experiment.sweep.plan import Call, PlannedRun
from dhocl.experiment.sweep.planning import prepare
from dhocl.experiment.sweep.work import FAILED, cores, places

__all__ = [
    "FAILED",
    "Begun",
    "Call",
    "Ended",
    "Event",
    "Job",
    "PlannedRun",
    "SweepFolder",
    "Underway",
    "portable",
    "prepare",
    "start",
    "sweep",
]


def sweep(
    recipes: Sequence[str],
    folder: str | Path,
    scale: Literal["smoke", "mini", "full", "paper"] = "smoke",
    *,
    seeds: int | None = None,
    first_seed: int = 0,
    methods: Sequence[str] = (),
    datasets: Sequence[str] = (),
    data: str | Path | None = None,
    backbones: Sequence[str] = (),
    engine: Literal["local", "ray"] = "local",
    workers: int = 0,
    address: str | None = None,
) -> list[Job]:
    """Run experiments of the paper.

    A sweep can be stopped and called again: finished runs in `folder` are skipped and unfinished ones resumed.
    `dhocl.report.write_sweep_report(folder)` makes tables and figures.

    Args:
        recipes: names of `dhocl list recipes`, or `["all"]`.
        folder: for runs and results.
        scale: "smoke" takes minutes and needs no data, "mini" and "full" need CIFAR-100 and CUB-200, "paper" all data
            sets.
        seeds: number of seeds; default 1, 2, 3 or 5, depending on the scale.
        first_seed: seeds count from here.
        methods: only runs of these methods now; default all. Other runs of the recipes can follow later.
        datasets: runs on these data sets instead of all those of the scale, which need not be there. Any data set will
            do, also `folder` or `module:function`.
        data: folder with the archives of the data sets.
        backbones: for rows of recipes that do not name one: `backbones` takes any number, `imagenet_h` needs one.
        engine: "local" for processes on this machine, "ray" for tasks on a Ray cluster.
        workers: parallel runs; 0 for one per GPU, or per core without one; on a cluster for as many as fit.
        address: of a running Ray cluster; None starts one on this machine.

    Returns:
        The runs that failed.

    Example:
        >>> import tempfile
        >>> from dhocl import sweep
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sweep(["dataset_stats"], folder)
        []
    """
    check_choice("scale", scale, Scale)
    check_choice("engine", engine, ("local", "ray"))
    size = Scale(scale)
    place = None if data is None else Path(data)
    check_least("first_seed", first_seed, 0)
    each = range(first_seed, first_seed + (seeds or SEEDS[size]))
    jobs = prepare(Path(folder), recipes, size, each, place, backbones, methods, datasets)
    events = start(jobs, engine, workers, address)
    return [event.job for event in events if isinstance(event, Ended) and event.problem]


def start(jobs: Sequence[Job], engine: str, workers: int, address: str | None) -> Iterator[Event]:
    """Execute jobs on an engine. Closing the iterator stops it."""
    if address is not None and engine != "ray":
        raise InputError("`address` is for a Ray cluster: add `engine` ray")
    if engine == "ray":
        from dhocl.experiment.sweep.cluster import run_on_ray

        return run_on_ray(jobs, workers, address)
    from dhocl.experiment.sweep.local import run_here

    return run_here(jobs, places(workers, len(jobs), cores(), torch.cuda.device_count()))
