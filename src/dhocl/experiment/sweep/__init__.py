"""Sweeps: many runs, planned by recipes and executed by an engine that yields events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from dhocl import data
from dhocl.core.errors import InputError, check_choice, check_least
from dhocl.core.taxonomy import UNKNOWN
from dhocl.data import Selection, Source
from dhocl.experiment.recipes import BASES, OPTIONAL, RECIPES, SEEDS, UNNAMED, Scale, Statistics, find_recipe
from dhocl.experiment.sweep.events import Begun, Ended, Event, Underway
from dhocl.experiment.sweep.folder import Job, PlannedRun, Statistic, SweepFolder, cells_of
from dhocl.experiment.sweep.work import FAILED, cores, places

__all__ = [
    "FAILED",
    "Begun",
    "Ended",
    "Event",
    "Job",
    "PlannedRun",
    "SweepFolder",
    "Underway",
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
        datasets: only runs on these data sets now, likewise. The others need not be there.
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


def prepare(
    folder: Path,
    recipes: Sequence[str],
    scale: Scale,
    seeds: Sequence[int],
    place: Path | None,
    backbones: Sequence[str] = (),
    methods: Sequence[str] = (),
    datasets: Sequence[str] = (),
) -> list[Job]:
    """Plan the recipes in a folder. Returns the runs that are not finished, without duplicates.

    Only those of these methods and on these data sets, if any are named.

    InputError if data or a backbone is missing, before anything is written.
    """
    names = list(RECIPES) if list(recipes) == ["all"] else list(recipes)
    unnamed = {
        cell.row: name for name in names for cell in find_recipe(name).cells(scale) if cell.config.backbone == UNNAMED
    }
    needed = [name for row, name in unnamed.items() if OPTIONAL not in row]
    if needed and len(backbones) != 1:
        raise InputError(
            f"{needed[0]} at this scale needs one backbone, not trained on ImageNet (in the paper: trained on "
            "iNaturalist 2018): give it as `backbone` hub:FOLDER"
        )
    if backbones and not unnamed:
        raise InputError("`backbone`: these recipes at this scale have their own backbones, leave it out")
    cells = [cell for name in names for cell in cells_of(name, scale, backbones)]
    sets = {cell.config.dataset: cell.config for cell in cells}
    for method in methods:
        check_choice("method", method, sorted({cell.config.method for cell in cells}))
    for name in datasets:
        check_choice("dataset", name, sorted(sets))
    for name, config in sets.items():
        if datasets and name not in datasets:
            continue
        if name != "glyphs" and place is None:
            raise InputError(f"these recipes at this scale need {name}: give its folder as `data`")
        data.check(name, Selection(place, config.image_size))
    jobs: dict[str, Job] = {}
    for name in names:
        shown = statistics(scale, place) if Statistics() in find_recipe(name).exhibits else ()
        for job in SweepFolder(folder).plan(name, scale, seeds, place, backbones, shown):
            jobs[job.folder.name] = job
    return [
        job
        for job in jobs.values()
        if (not methods or job.config.method in methods)
        and (not datasets or job.config.dataset in datasets)
        and not job.finished
    ]


def statistics(scale: Scale, place: Path | None) -> list[Statistic]:
    """Of the data sets of a scale; for one that is not found, the error message."""
    found = []
    for name, base in BASES[scale].items():
        try:
            found.append(describe(data.check(name, Selection(place, base.get("image_size")))))
        except InputError as missing:
            found.append({"name": name, "missing": str(missing)})
    return found


def describe(source: Source) -> Statistic:
    """Sizes, levels, and whether images and tree are balanced."""
    nodes, tree = source.train.nodes, source.tree
    counts = np.unique(nodes, return_counts=True)[1]
    paths = tree.paths.numpy()[np.unique(nodes)]
    return {
        "name": source.name,
        "train": len(nodes),
        "test": len(source.test.nodes),
        "levels": list(source.levels),
        "classes": list(tree.widths.values()),
        "fewest": int(counts.min()),  # images of a class
        "most": int(counts.max()),
        "even": bool((paths != UNKNOWN).all()),  # every leaf has a class at every level
    }


def start(jobs: Sequence[Job], engine: str, workers: int, address: str | None) -> Iterator[Event]:
    """Execute jobs on an engine. Closing the iterator stops it."""
    if address is not None and engine != "ray":
        raise InputError("`address` is for a Ray cluster: add `engine` ray")
    if engine == "ray":
        from dhocl.experiment.sweep.cluster import run_on_ray

        return run_on_ray(jobs, workers, address)
    from dhocl.experiment.sweep.local import run_here

    return run_here(jobs, places(workers, len(jobs), cores(), torch.cuda.device_count()))
