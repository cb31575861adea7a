"""Streams of earlier work: i-Blurry, HLE and IIRC, as plans with the ends of groups that their metrics need.

docs/scenarios.md describes each one and its differences from the paper.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.stream.plan import Plan

DISJOINT = 0.5  # i-Blurry's N: fraction of classes that occur in one group only
BLURRY = 0.1  # i-Blurry's M: fraction of the images of the other classes that is spread over all groups
FIRST, LATER = 10, 5  # IIRC: superclasses in the first group, labels in each later one
CHILDREN = 8  # IIRC: a superclass with more subclasses takes fewer images of each


def iblurry(nodes: np.ndarray, tree: Taxonomy, groups: int = 5, seed: int = 0) -> Plan:
    """i-Blurry: finest labels; some classes in one group only, the others with a part of their images in all groups."""
    rng = Rng(seed, 0x57E4)
    classes = _classes(nodes, tree, 1)[:, 0]
    names = rng.permutation(np.unique(classes))
    _check(groups, len(names), "classes")
    home = np.empty(names.max() + 1, dtype=np.int64)
    home[names] = np.arange(len(names)) % groups  # balances disjoint and blurry classes over the groups
    group = home[classes]
    order = _by_class(classes[:, None], rng)
    blurry = order[np.isin(classes[order], names[round(DISJOINT * len(names)) :])]
    marks = np.floor(BLURRY * np.arange(len(blurry) + 1) + rng.random())
    strays = blurry[np.diff(marks) > 0]  # evenly spaced in order of class: the same fraction of each
    group[strays] = np.arange(len(strays)) % groups
    return _join([_labelled(np.flatnonzero(group == place), tree.levels[-1]) for place in range(groups)], rng)


def hle_single(nodes: np.ndarray, tree: Taxonomy, groups: int = 5, seed: int = 0) -> Plan:
    """HLE, single label: some images by superclass, then the others by class, in groups of superclasses."""
    rng = Rng(seed, 0x57E4)
    classes = _two_levels(nodes, tree, groups)
    order = _by_class(classes, rng)
    above = classes[order, 0]
    first = np.concatenate([order[above == name][:: groups + 1] for name in np.unique(above)])  # balanced over classes
    rest = np.setdiff1d(np.arange(len(nodes)), first)
    return _coarse_then_fine(first, rest, classes[:, 0], tree, groups, rng)


def hle_dual(nodes: np.ndarray, tree: Taxonomy, groups: int = 5, seed: int = 0) -> Plan:
    """HLE, dual label: all images by superclass, then all again by class, in groups of superclasses."""
    classes, images = _two_levels(nodes, tree, groups), np.arange(len(nodes))
    return _coarse_then_fine(images, images, classes[:, 0], tree, groups, Rng(seed, 0x57E4))


def hle_multi(nodes: np.ndarray, tree: Taxonomy, seed: int = 0) -> Plan:
    """HLE, several levels: a group per level, coarse to fine, with the same fraction of the images of every class."""
    rng = Rng(seed, 0x57E4)
    order = _by_class(_classes(nodes, tree, len(tree.levels)), rng)
    return _join([_labelled(order[place :: len(tree.levels)], level) for place, level in enumerate(tree.levels)], rng)


def iirc(nodes: np.ndarray, tree: Taxonomy, seed: int = 0) -> Plan:
    """IIRC: superclasses and subclasses as labels, a superclass in an earlier group than its subclasses.

    Of the images of a subclass the first 40 % are labelled by superclass and the last 80 % by subclass: 20 % occur
    twice.
    """
    rng = Rng(seed, 0x57E4)
    coarse, fine = _classes(nodes, tree, 2).T
    above, below = tree.nodes(tree.levels[-2]).numpy()[coarse], tree.nodes(tree.levels[-1]).numpy()[fine]  # (N,) nodes
    parents = dict(zip(below.tolist(), above.tolist(), strict=True))
    rows: dict[int, np.ndarray] = {}  # node -> (n, 2) its samples
    for parent in sorted(set(parents.values())):
        children = rng.permutation([child for child in sorted(parents) if parents[child] == parent]).tolist()
        seen = taken = 0
        upper = []
        for child in children:
            images = rng.permutation(np.flatnonzero(below == child))
            seen += len(images)
            # 40 % (less with many children) of all images so far, rounded up in total, so that no superclass gets none
            share = -(-2 * CHILDREN * seen // (5 * max(CHILDREN, len(children)))) - taken
            taken += share
            upper.append(images[:share])
            rows[child] = _labelled(images[min(len(images) // 5, share) :], tree.levels[-1])
        rows[parent] = _labelled(np.concatenate(upper), tree.levels[-2])
    return _join([np.concatenate([rows[node] for node in group]) for group in _label_groups(parents, rng)], rng)


GROUPED: dict[str, Callable[[np.ndarray, Taxonomy, int, int], Plan]] = {
    "iblurry": iblurry,
    "hle_single": hle_single,
    "hle_dual": hle_dual,
}
FIXED: dict[str, Callable[[np.ndarray, Taxonomy, int], Plan]] = {"hle_multi": hle_multi, "iirc": iirc}  # own groups


def _label_groups(parents: dict[int, int], rng: np.random.Generator) -> list[list[int]]:
    """The labels of each group, given the superclass of each subclass."""
    upper = rng.permutation(sorted(set(parents.values()))).tolist()
    first = min(FIRST, -(-2 * len(upper) // 3))  # some superclasses come later, as 5 of the 15 of IIRC
    groups, waiting = [upper[:first]], [*upper[first:], *sorted(parents)]
    seen = set(groups[0])
    while waiting:
        ready = [node for node in waiting if node not in parents or parents[node] in seen]
        groups.append(rng.permutation(ready)[:LATER].tolist())
        seen.update(groups[-1])
        waiting = [node for node in waiting if node not in seen]
    return groups


def _coarse_then_fine(
    first: np.ndarray, rest: np.ndarray, above: np.ndarray, tree: Taxonomy, groups: int, rng: np.random.Generator
) -> Plan:
    """The images `first` by superclass, then `rest` by class in groups. `above` (N,): superclass of each image."""
    parts = np.array_split(rng.permutation(np.unique(above)), groups)
    homes = [rest[np.isin(above[rest], part)] for part in parts]
    coarse, fine = tree.levels[-2:]
    return _join([_labelled(first, coarse), *(_labelled(images, fine) for images in homes)], rng)


def _two_levels(nodes: np.ndarray, tree: Taxonomy, groups: int) -> np.ndarray:
    """(N, 2) superclass and class of each image. InputError if there are fewer superclasses than groups."""
    classes = _classes(nodes, tree, 2)
    _check(groups, len(np.unique(classes[:, 0])), "superclasses")
    return classes


def _classes(nodes: np.ndarray, tree: Taxonomy, depth: int) -> np.ndarray:
    """(N, depth) class of each image at the finest levels, coarsest first."""
    if len(nodes) == 0:
        raise InputError("the stream is empty: the data set has no training image")
    if len(tree.levels) < depth:
        raise InputError("this `scenario` needs two levels, but the data set has one: choose another")
    classes: np.ndarray = tree.paths.numpy()[nodes][:, -depth:]
    if (classes == UNKNOWN).any():
        raise InputError("this `scenario` needs a class at each of its levels for every image: choose dhocl")
    return classes


def _by_class(classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(N,) images, sorted by class at each level of `classes` (N, levels), in random order otherwise.

    Every n-th image of it is a class-balanced subset.
    """
    keys = [rng.permutation(column.max() + 1)[column] for column in classes.T]
    order: np.ndarray = np.lexsort((rng.random(len(classes)), *reversed(keys)))
    return order


def _labelled(images: np.ndarray, level: int) -> np.ndarray:
    return np.stack([images, np.full_like(images, level)], axis=1)


def _join(groups: list[np.ndarray], rng: np.random.Generator) -> Plan:
    """Groups (n, 2) one after the other, each in random order."""
    ends = np.cumsum([len(group) for group in groups]).tolist()
    return Plan(np.concatenate([rng.permutation(group) for group in groups]), tuple(ends))


def _check(groups: int, most: int, what: str) -> None:
    if not 1 <= groups <= most:
        raise InputError(f"`groups` {groups}: choose from 1 to {most}, the number of {what}")
