"""Sweeps: many runs, planned by recipes and executed by an engine that yields events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from dhocl import data
from dhocl.core.errors import InputError, check_choice, check_least
from dhocl.core.outside import short
from dhocl.core.taxonomy import UNKNOWN
from dhocl.data import Selection, Source
from dhocl.experiment.recipes import (
    BASES,
    IMAGES,
    OPTIONAL,
    RECIPES,
    SEEDS,
    UNNAMED,
    Basis,
    GridCell,
    Scale,
    Statistics,
    basis_for,
    basis_of,
    find_recipe,
)
from dhocl.experiment.sweep.events import Begun, Ended, Event, Underway
from dhocl.experiment.sweep.folder import Job, SweepFolder, cells_of
from dhocl.experiment.sweep.naming import absolute_backbone, own, portable, portable_backbone, portable_data
from dhocl.experiment.sweep.plan import Call, PlannedRun, Statistic
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

    Only runs of these methods, and on these data sets, if any are named.

    InputError if data or a backbone is missing, before anything is written.
    """
    names = list(RECIPES) if list(recipes) == ["all"] else list(recipes)
    bases = [basis_on(scale, name, place) for name in dict.fromkeys(datasets)] or [basis_of(scale)]
    whole = {name: [cell for basis in bases for cell in find_recipe(name).grid(basis)] for name in names}
    unnamed = {cell.row: name for name, cells in whole.items() for cell in cells if cell.config.backbone == UNNAMED}
    needed = [name for row, name in unnamed.items() if OPTIONAL not in row]
    if needed and len(backbones) != 1:
        raise InputError(
            f"{needed[0]} at this scale needs one backbone, not trained on ImageNet (in the paper: trained on "
            "iNaturalist 2018): give it as `backbone` hub:FOLDER"
        )
    if backbones and not unnamed:
        raise InputError("`backbone`: these recipes at this scale have their own backbones, leave it out")
    backbones = [absolute_backbone(name) for name in backbones]
    grids = {name: [cell for basis in bases for cell in cells_of(name, basis, backbones)] for name in names}
    if datasets and not any(grids.values()) and "dataset_stats" not in names:
        raise InputError(f"{', '.join(names)}: nothing to run, as {', '.join(datasets)} has an order of its own")
    known = sorted({cell.config.method for cells in grids.values() for cell in cells})
    for method in methods:
        check_choice("method", method, known)
    if methods:
        grids = {name: [cell for cell in cells if cell.config.method in methods] for name, cells in grids.items()}
    for config in {cell.config.dataset: cell.config for cells in grids.values() for cell in cells}.values():
        if config.dataset in BASES[scale]:  # the others were opened to make their grids
            opened(config.dataset, place, config.image_size)
    jobs: dict[str, Job] = {}
    for name, cells in grids.items():
        shown = statistics(bases, place) if Statistics() in find_recipe(name).exhibits else ()
        if not cells and not shown:
            continue
        call = call_of(cells, seeds, place, datasets, methods, backbones if name in unnamed.values() else ())
        for job in SweepFolder(folder).plan(name, scale, cells, call, place, shown):
            jobs[job.folder.name] = job
    return [job for job in jobs.values() if not job.finished]


def basis_on(scale: Scale, dataset: str, place: Path | None) -> Basis:
    """The grids on one data set, which the scale may have or not."""
    if dataset in BASES[scale]:
        return Basis(scale, {dataset: BASES[scale][dataset]}, IMAGES)
    source = opened(dataset, place)
    images, tests = len(source.train.nodes), len(source.test.nodes)
    if not tests:  # some of the training images are held out
        tests = max(1, images // 5)
        images -= tests
    panel = short(dataset)
    if place is not None and own(dataset):
        panel = f"{panel} {place.absolute().name.replace(',', '')}"  # a comma begins a condition
    return basis_for(scale, panel, dataset, images, tests, source.given)


def opened(dataset: str, place: Path | None, image_size: int | None = None) -> Source:
    if place is None and dataset in data.DATASETS and dataset != "glyphs":
        raise InputError(f"these recipes at this scale need {dataset}: give its folder as `data`")
    return data.check(dataset, Selection(place, image_size))


def call_of(
    cells: Sequence[GridCell],
    seeds: Sequence[int],
    place: Path | None,
    datasets: Sequence[str],
    methods: Sequence[str],
    backbones: Sequence[str],
) -> Call:
    """The call that makes the runs of one recipe, which need not have all the methods."""
    named = {cell.config.dataset for cell in cells}
    found = {cell.config.method for cell in cells}
    needs = (
        None
        if place is None or named == {"glyphs"}
        else max((portable_data(name, place) for name in named), default="DIR")
    )
    return Call(
        tuple(datasets),
        tuple(method for method in methods if method in found),
        tuple(map(portable_backbone, backbones)),
        needs,
        tuple(seeds) if cells else (),
    )


def statistics(bases: Sequence[Basis], place: Path | None) -> list[Statistic]:
    """Of data sets; for one that is not found, the error message."""
    found = []
    for panel, fields in ((panel, fields) for basis in bases for panel, fields in basis.datasets.items()):
        try:
            source = data.check(fields.get("dataset", panel), Selection(place, fields.get("image_size")))
            found.append(describe(source) | {"name": panel})
        except InputError as missing:
            found.append({"name": panel, "missing": str(missing)})
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
