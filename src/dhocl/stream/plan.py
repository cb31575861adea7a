"""The plan of a stream: which image comes when, and at which level it is labelled.

A plan is a table (samples, 2) of image index and level. It depends on labels and seed only, so it is the same for every
method.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dhocl.core.errors import InputError, check_least
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Taxonomy


class Plan(NamedTuple):
    table: np.ndarray  # (samples, 2) image index and level
    ends: tuple[int, ...] = ()  # number of samples up to the end of each group, if a metric needs it


@dataclass(frozen=True)
class PlanConfig:
    """Settings of a DHOCL stream.

    Args:
        groups: number of groups that the classes are split into; groups come one after the other.
        overlap: fraction of the classes of a group that also occur in the next group.
        split_level: level whose classes are split into groups; None for the finest.
        passes: repetitions of each group, each with new random levels.
        granularity: weight of each level as the level of a label; None for uniform.
        seed: of all random draws.
    """

    groups: int = 10
    overlap: float = 0.2
    split_level: int | None = None
    passes: int = 1
    granularity: tuple[float, ...] | None = None
    seed: int = 0


def plan(nodes: np.ndarray, tree: Taxonomy, config: PlanConfig) -> np.ndarray:
    """Plan a DHOCL stream.

    Args:
        nodes: (N,) leaf of `tree` that each image shows.
        tree: the true tree.
        config: groups, overlap, seed and so on.

    Returns:
        (samples, 2) image index and level.

    Example:
        >>> from dhocl.data.lineage import grow
        >>> tree, leaves = grow([("bird", "robin"), ("bird", "wren")])
        >>> table = plan(leaves.repeat(2), tree, PlanConfig(groups=2, overlap=0))
        >>> table.shape, sorted(table[:, 0].tolist())
        ((4, 2), [0, 1, 2, 3])
    """
    if len(nodes) == 0:
        raise InputError("the stream is empty: the data set has no training image")
    check_least("passes", config.passes, 1)
    rng = Rng(config.seed, 0x57E4)
    paths = tree.paths.numpy()[nodes]  # (N, levels)
    groups = split_classes(paths[:, _split_place(tree, config)], config, rng)
    weights = _level_weights(len(tree.levels), config) * (paths != UNKNOWN)  # (N, levels): 0 where a rank is missing
    if (weights.sum(1) == 0).any():
        raise InputError("some images have no class at any level with a positive `granularity`: give more levels one")
    below = np.cumsum(weights / weights.sum(1, keepdims=True), axis=1)
    parts = []
    for members in groups:
        for _ in range(config.passes):
            images = rng.permutation(members)
            places = (rng.random(len(images))[:, None] >= below[images, :-1]).sum(1)
            parts.append(np.stack([images, np.array(tree.levels)[places]], axis=1))
    return np.concatenate(parts)


def split_classes(classes: np.ndarray, config: PlanConfig, rng: np.random.Generator) -> list[np.ndarray]:
    """Image indices of each group. `classes` (N,) is the class of each image at `split_level`.

    Each class has a home group. A fraction `overlap` of the home classes of a group also occur in the next group; their
    images are divided between the two. Every image is in exactly one group.
    """
    if (classes == UNKNOWN).any():
        raise InputError("some images have no class at the level that is split: choose another `split_level`")
    if not 0 <= config.overlap <= 1:
        raise InputError(f"`overlap` {config.overlap} must be between 0 and 1")
    names = np.unique(classes)
    if not 1 <= config.groups <= len(names):
        raise InputError(f"`groups` {config.groups}: choose from 1 to {len(names)}, the number of classes")
    homes = np.array_split(rng.permutation(names), config.groups)
    members: list[list[np.ndarray]] = [[] for _ in homes]
    wanted = done = 0.0  # shared classes so far: a later group compensates the rounding of an earlier one
    for place, home in enumerate(homes):
        wanted += config.overlap * len(home)
        shared = min(len(home), round(wanted - done)) if place + 1 < len(homes) else 0
        done += shared
        for rank, name in enumerate(home):
            images = rng.permutation(np.flatnonzero(classes == name))
            here = (len(images) + 1) // 2 if rank < shared else len(images)
            members[place].append(images[:here])
            if rank < shared:
                members[place + 1].append(images[here:])
    return [np.concatenate(images) for images in members]


def given(nodes: np.ndarray, tree: Taxonomy) -> np.ndarray:
    """The plan of a data set that is a stream already: in its order, each image at the level of its label."""
    if len(nodes) == 0:
        raise InputError("the stream is empty: the data set has no training image")
    return np.array([(image, tree.labels[node].level) for image, node in enumerate(nodes)])


def save(table: np.ndarray, path: Path) -> None:
    """Write a plan as text, one line per sample."""
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
        raise InputError(f"`split_level` {config.split_level}: the data set has levels {tree.levels}")
    return tree.levels.index(config.split_level)


def _level_weights(levels: int, config: PlanConfig) -> np.ndarray:
    weights = np.ones(levels) if config.granularity is None else np.array(config.granularity, dtype=float)
    if len(weights) != levels or (weights < 0).any() or not 0 < weights.sum() < np.inf:
        raise InputError(f"granularity needs {levels} weights, none negative, not all zero")
    shares: np.ndarray = weights / weights.sum()
    return shares
