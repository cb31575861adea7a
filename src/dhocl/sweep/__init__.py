"""Many runs: planned by recipes, made by an engine, told of as they go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dhocl import data
from dhocl.data import Selection, Source
from dhocl.errors import InputError
from dhocl.recipes import BASES, RECIPES, UNNAMED, Scale, Statistics, find_recipe
from dhocl.sweep.events import Begun, Ended, Event, Underway
from dhocl.sweep.folder import Entry, Job, Statistic, SweepFolder, cells_of
from dhocl.sweep.work import FAILED, cores
from dhocl.taxonomy import UNKNOWN

__all__ = ["FAILED", "Begun", "Ended", "Entry", "Event", "Job", "SweepFolder", "Underway", "prepare", "start"]


def prepare(
    folder: Path, recipes: Sequence[str], scale: Scale, seeds: int, place: Path | None, backbone: str | None = None
) -> list[Job]:
    """Plan the recipes in a folder; the runs that are not finished, each once.

    Missing data or a missing backbone is an error before anything is written.
    """
    names = list(RECIPES) if list(recipes) == ["all"] else list(recipes)
    unnamed = [name for name in names if any(c.config.backbone == UNNAMED for c in cells_of(name, scale, None))]
    if unnamed and backbone is None:
        raise InputError(
            f"{unnamed[0]} at this scale needs a backbone that never saw ImageNet (the paper: pretrained on "
            "iNaturalist 2018): name it with --backbone hub:FOLDER"
        )
    if backbone is not None and not unnamed:
        raise InputError("--backbone: these recipes at this scale name their backbones, leave it out")
    cells = [cell for name in names for cell in cells_of(name, scale, backbone)]
    sets = {cell.config.dataset: cell.config for cell in cells}
    for name, config in sets.items():
        if name != "glyphs" and place is None:
            raise InputError(f"these recipes at this scale need {name}: name the folder that holds it with --data")
        data.check(name, Selection(place, config.image_size))
    jobs: dict[str, Job] = {}
    for name in names:
        told = Statistics() in find_recipe(name).exhibits
        facts = statistics(scale, place) if told else ()
        for job in SweepFolder(folder).plan(name, scale, seeds, place, backbone, facts):
            jobs[job.folder.name] = job
    return [job for job in jobs.values() if not job.finished]


def statistics(scale: Scale, place: Path | None) -> list[Statistic]:
    """Of the scale's data sets, those that can be found."""
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
    """Set an engine to work; whoever stops listening stops it."""
    if address is not None and engine != "ray":
        raise InputError("--address is of a Ray cluster: add --engine ray")
    if engine == "ray":
        from dhocl.sweep.cluster import run_on_ray

        return run_on_ray(jobs, workers, address)
    from dhocl.sweep.local import run_here

    return run_here(jobs, min(workers or cores(), max(1, len(jobs))))
