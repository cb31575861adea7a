"""The stream as data: which image comes when, and at which level it is labelled.

A plan is a table (samples, 2) of image index and level, made from labels and a seed alone. It is the same for every
method, can be hashed, saved and tested without one image.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dhocl.errors import InputError
from dhocl.taxonomy import UNKNOWN, Taxonomy


class Plan(NamedTuple):
    table: np.ndarray  # (samples, 2) image index and level
    ends: tuple[int, ...] = ()  # samples after which each group is over, where a metric asks for that


@dataclass(frozen=True)
class PlanConfig:
    groups: int = 10  # the classes are dealt into this many groups, which come one after the other
    overlap: float = 0.2  # share of a group's classes that the next group shares
    split_level: int | None = None  # level whose classes are dealt; None: the finest
    passes: int = 1  # repetitions inside each group, each with fresh levels
    granularity: tuple[float, ...] | None = None  # weight of each level; None: uniform
    seed: int = 0


def plan(nodes: np.ndarray, tree: Taxonomy, config: PlanConfig) -> np.ndarray:
    """(samples, 2) image index and level of a DHOCL stream over images that show the leaves `nodes` (N,) of a tree."""
    if len(nodes) == 0:
        raise InputError("the stream is empty: the data set has no training image")
    if config.passes < 1:
        raise InputError(f"--passes {config.passes}: a stream needs at least one pass")
    rng = np.random.default_rng([config.seed, 0x57E4])
    paths = tree.paths.numpy()[nodes]  # (N, levels)
    groups = deal(paths[:, _split_place(tree, config)], config, rng)
    weights = _level_weights(len(tree.levels), config) * (paths != UNKNOWN)  # (N, levels): none where a rank is missing
    if (weights.sum(1) == 0).any():
        raise InputError("some images have no class at any level that `granularity` admits")
    below = np.cumsum(weights / weights.sum(1, keepdims=True), axis=1)
    parts = []
    for members in groups:
        for _ in range(config.passes):
            images = rng.permutation(members)
            places = (rng.random(len(images))[:, None] >= below[images, :-1]).sum(1)
            parts.append(np.stack([images, np.array(tree.levels)[places]], axis=1))
    return np.concatenate(parts)


def deal(classes: np.ndarray, config: PlanConfig, rng: np.random.Generator) -> list[np.ndarray]:
    """Image indices of each group. `classes` (N,) is the class of each image at the level that is dealt.

    Each class has a home group; `overlap` of a group's home classes appear in the next group too, their images
    divided between the two. Every image is in exactly one group.
    """
    if (classes == UNKNOWN).any():
        raise InputError("some images have no class at the level that is dealt: choose another --split-level")
    if not 0 <= config.overlap <= 1:
        raise InputError(f"--overlap {config.overlap} must be between 0 and 1")
    names = np.unique(classes)
    if not 1 <= config.groups <= len(names):
        raise InputError(f"--groups {config.groups}: choose from 1 to {len(names)}, the number of classes dealt")
    homes = np.array_split(rng.permutation(names), config.groups)
    members: list[list[np.ndarray]] = [[] for _ in homes]
    asked = done = 0.0  # classes shared up to here: what one group rounds off, a later one makes up for
    for place, home in enumerate(homes):
        asked += config.overlap * len(home)
        shared = min(len(home), round(asked - done)) if place + 1 < len(homes) else 0
        done += shared
        for rank, name in enumerate(home):
            images = rng.permutation(np.flatnonzero(classes == name))
            here = (len(images) + 1) // 2 if rank < shared else len(images)
            members[place].append(images[:here])
            if rank < shared:
                members[place + 1].append(images[here:])
    return [np.concatenate(images) for images in members]


def given(nodes: np.ndarray, tree: Taxonomy) -> np.ndarray:
    """The plan of a data set that is a stream already: its own order, each image at its own label's level."""
    if len(nodes) == 0:
        raise InputError("the stream is empty: the data set has no training image")
    return np.array([(image, tree.labels[node].level) for image, node in enumerate(nodes)])


def save(table: np.ndarray, path: Path) -> None:
    """As text, a line a sample, so that a plan can be read and compared."""
    np.savetxt(path, table, fmt="%d", delimiter="\t", header="image\tlevel", comments="")


def load(path: Path) -> np.ndarray:
    try:
        table: np.ndarray = np.loadtxt(path, dtype=np.int64, delimiter="\t", skiprows=1, ndmin=2)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a stream plan: {error}") from error
    if table.shape[1] != 2 or len(table) == 0:
        raise InputError(f"{path} is not a stream plan: expected two columns, image and level")
    return table


def _split_place(tree: Taxonomy, config: PlanConfig) -> int:
    if config.split_level is None:
        return len(tree.levels) - 1
    if config.split_level not in tree.levels:
        raise InputError(f"--split-level {config.split_level}: the data set has levels {tree.levels}")
    return tree.levels.index(config.split_level)


def _level_weights(levels: int, config: PlanConfig) -> np.ndarray:
    weights = np.ones(levels) if config.granularity is None else np.array(config.granularity, dtype=float)
    if len(weights) != levels or (weights < 0).any() or not 0 < weights.sum() < np.inf:
        raise InputError(f"granularity needs {levels} weights, none negative, not all zero")
    shares: np.ndarray = weights / weights.sum()
    return shares
