"""Plan the runs that a sweep is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dhocl import data
from dhocl.core.errors import InputError, check_choice
from dhocl.core.outside import short
from dhocl.core.taxonomy import UNKNOWN
from dhocl.data import Selection, Source
from dhocl.experiment.recipes import (
    BASES,
    IMAGES,
    OPTIONAL,
    RECIPES,
    UNNAMED,
    Basis,
    GridCell,
    Scale,
    Statistics,
    basis_for,
    basis_of,
    find_recipe,
)
from dhocl.experiment.sweep.folder import Job, SweepFolder, cells_of
from dhocl.experiment.sweep.naming import absolute_backbone, own, portable_backbone, portable_data
from dhocl.experiment.sweep.plan import Call, Statistic

Grids = Mapping[str, Sequence[GridCell]]  # by recipe


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
    _check_backbones(names, bases, backbones)
    backbones = [absolute_backbone(name) for name in backbones]
    grids = {name: [cell for basis in bases for cell in cells_of(name, basis, backbones)] for name in names}
    described = {name: statistics(bases, place) for name in names if Statistics() in find_recipe(name).exhibits}
    if not described and not any(grids.values()):
        raise InputError(f"{', '.join(names)}: nothing to run, as {', '.join(datasets)} has an order of its own")
    known = sorted({cell.config.method for cells in grids.values() for cell in cells})
    for method in methods:
        check_choice("method", method, known)
    if methods:
        grids = {name: [cell for cell in cells if cell.config.method in methods] for name, cells in grids.items()}
    _check_data(grids, scale, place)
    jobs: dict[str, Job] = {}
    for name, cells in grids.items():
        if cells or name in described:
            call = call_of(cells, seeds, place, datasets, methods, backbones)
            for job in SweepFolder(folder).plan(name, scale, cells, call, place, described.get(name, ())):
                jobs[job.folder.name] = job
    return [job for job in jobs.values() if not job.finished]


def basis_on(scale: Scale, dataset: str, place: Path | None) -> Basis:
    """For grids on one data set, which the scale may have or not."""
    if dataset in BASES[scale]:
        return Basis(scale, {dataset: BASES[scale][dataset]}, IMAGES)
    source = opened(dataset, place)
    images, tests, classes = len(source.train.nodes), len(source.test.nodes), len(np.unique(source.train.nodes))
    if not tests:  # some of the training images are held out
        tests = max(1, images // 5)
        images -= tests
    panel = short(dataset)
    if place is not None and own(dataset):
        panel = f"{panel} {place.absolute().name.replace(',', '')}"  # a comma begins a condition
    return basis_for(scale, panel, dataset, images, tests, None if source.given else classes)


def opened(dataset: str, place: Path | None, image_size: int | None = None) -> Source:
    if place is None and dataset in data.DATASETS and dataset != "glyphs":
        raise InputError(f"these recipes at this scale need {dataset}: give its folder as `data`")
    return data.check(dataset, Selection(place, image_size))


def _check_backbones(names: Sequence[str], bases: Sequence[Basis], backbones: Sequence[str]) -> None:
    grids = {name: [cell for basis in bases for cell in find_recipe(name).grid(basis)] for name in names}
    unnamed = {cell.row: name for name, cells in grids.items() for cell in cells if cell.config.backbone == UNNAMED}
    needed = [name for row, name in unnamed.items() if OPTIONAL not in row]
    if needed and len(backbones) != 1:
        raise InputError(
            f"{needed[0]} at this scale needs one backbone, not trained on ImageNet (in the paper: trained on "
            "iNaturalist 2018): give it as `backbone` hub:FOLDER"
        )
    if backbones and not unnamed:
        raise InputError("`backbone`: these recipes at this scale have their own backbones, leave it out")


def _check_data(grids: Grids, scale: Scale, place: Path | None) -> None:
    """Open the data sets of the scale; others were opened for their sizes."""
    configs = {cell.config.dataset: cell.config for cells in grids.values() for cell in cells}
    for name, config in configs.items():
        if name in BASES[scale]:
            opened(name, place, config.image_size)


def call_of(
    cells: Sequence[GridCell],
    seeds: Sequence[int],
    place: Path | None,
    datasets: Sequence[str],
    methods: Sequence[str],
    backbones: Sequence[str],
) -> Call:
    """The call that makes the runs of one recipe: only with the methods and backbones that it has."""
    configs = [cell.config for cell in cells]
    return Call(
        tuple(datasets),
        tuple(name for name in methods if name in {config.method for config in configs}),
        tuple(portable_backbone(name) for name in backbones if name in {config.backbone for config in configs}),
        _data_of(set(datasets) or {config.dataset for config in configs}, place),
        tuple(seeds) if cells else (),
    )


def _data_of(names: set[str], place: Path | None) -> str | None:
    """The name of the folder matters if one of the data sets is the user's own."""
    if place is None or names == {"glyphs"}:
        return None
    return next((portable_data(name, place) for name in names if own(name)), "DIR")


def statistics(bases: Sequence[Basis], place: Path | None) -> list[Statistic]:
    """Of data sets; for one that is not found, the error message."""
    found = []
    for panel, fields in ((panel, fields) for basis in bases for panel, fields in basis.datasets.items()):
        try:
            source = data.check(fields.get("dataset", panel), Selection(place, fields.get("image_size")))
            found.append({"name": panel} | describe(source))
        except InputError as missing:
            found.append({"name": panel, "missing": str(missing)})
    return found


def describe(source: Source) -> Statistic:
    """Sizes, levels, and whether images and tree are balanced."""
    nodes, tree = source.train.nodes, source.tree
    counts = np.unique(nodes, return_counts=True)[1]
    paths = tree.paths.numpy()[np.unique(nodes)]
    return {
        "train": len(nodes),
        "test": len(source.test.nodes),
        "levels": list(source.levels),
        "classes": list(tree.widths.values()),
        "fewest": int(counts.min()),  # images of a class
        "most": int(counts.max()),
        "even": bool((paths != UNKNOWN).all()),  # every leaf has a class at every level
    }
