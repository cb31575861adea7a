"""What a data set is, and how a run picks its part of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dhocl.data.files import Files, Images, channels_first
from dhocl.errors import InputError
from dhocl.taxonomy import Taxonomy

IN_MEMORY = 2**30  # bytes that the images of a split may take decoded; where it is more they stay in their files

Fetch = Callable[[np.ndarray], np.ndarray]  # (n,) indices -> (n, H, W, 3) uint8


class Table(NamedTuple):
    """The labels of a split, and a way to its images."""

    nodes: np.ndarray  # (N,) node of the true tree that each image shows
    images: Fetch | Files


@dataclass(frozen=True)
class Source:
    """A whole data set, before a run picks its part: images come to memory only when they are fetched."""

    name: str
    levels: tuple[str, ...]  # rank names, coarsest first; the index is the level
    tree: Taxonomy  # the true one; its nodes carry these levels
    train: Table
    test: Table
    flip: bool  # a mirrored image still shows its class
    given: bool = False  # the training rows are a stream already: in order, each labelled at its own level


class Split(NamedTuple):
    images: Images  # (N, 3, H, W) uint8
    nodes: Tensor  # (N,) int64, nodes of the true tree

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True)
class Dataset:
    """Images, what each shows, and the true tree. Only the stream and the evaluator may see the last."""

    name: str
    levels: tuple[str, ...]
    tree: Taxonomy
    train: Split
    test: Split
    flip: bool
    given: bool = False


@dataclass(frozen=True)
class Selection:
    """Which part of a data set a run uses, and how it is brought to size."""

    data: Path | None = None  # folder with the published archive or the extracted files
    image_size: int | None = None  # None: the data set's own default
    samples: int | None = None  # class-balanced training subset
    test_samples: int | None = None  # class-balanced test subset
    holdout: bool = False  # judge on images held out from the training part; the test images stay untouched
    seed: int = 0


def select(source: Source, selection: Selection) -> Dataset:
    """Draw the asked subsets, class-balanced, and decode those that fit in memory.

    Where there is no test image, others are held out.
    """
    rng = np.random.default_rng([selection.seed, 0xDA7A])
    train, test = np.arange(len(source.train.nodes)), np.arange(len(source.test.nodes))
    judge = source.test
    if selection.holdout or len(test) == 0:
        judge = source.train
        held = max(1, len(train) // 5) if selection.test_samples is None else selection.test_samples
        test = balanced(source.train.nodes, held, rng)
        train = np.setdiff1d(train, test)
        if not len(train):
            raise InputError(f"holding out {held} images leaves none to train on: ask for fewer test images")
    elif selection.test_samples is not None:
        test = balanced(source.test.nodes, selection.test_samples, rng)
    if selection.samples is not None:
        kept = balanced(source.train.nodes[train], selection.samples, rng)
        train = train[kept]
    return Dataset(
        source.name,
        source.levels,
        source.tree,
        _take(source.train, train),
        _take(judge, test),
        source.flip,
        source.given,
    )


def balanced(classes: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Sorted indices of n rows, as even over the classes as their numbers allow.

    Rows are ranked at random inside their class and taken rank by rank; the last, partly taken rank is drawn
    at random over the classes.

    >>> rows = balanced(np.array([7] * 50 + [8] * 3 + [9] * 50), 13, np.random.default_rng(0))
    >>> np.unique(np.array([7] * 50 + [8] * 3 + [9] * 50)[rows], return_counts=True)[1].tolist()
    [5, 3, 5]
    """
    if not 0 < n <= len(classes):
        raise InputError(f"asked for {n} images, but there are {len(classes)}: choose a number from 1 to that")
    shuffled = rng.permutation(len(classes))
    order = shuffled[np.argsort(classes[shuffled], kind="stable")]  # by class, random inside
    sizes = np.unique(classes, return_counts=True)[1]
    rank = np.arange(len(classes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = np.lexsort((rng.random(len(classes)), rank))
    return np.sort(order[first[:n]])


def _take(table: Table, rows: np.ndarray) -> Split:
    nodes = torch.from_numpy(table.nodes[rows]).long()
    if isinstance(table.images, Files):
        files = table.images.pick(rows)
        if files.nbytes > IN_MEMORY:
            return Split(files, nodes)
        pixels = files.decoded()
    else:
        pixels = table.images(rows)
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8:
        raise InputError(f"images must be (N, H, W, 3) uint8, got {pixels.shape} {pixels.dtype}")
    return Split(channels_first(pixels), nodes)
