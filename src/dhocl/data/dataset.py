"""Data sets, and the selection of the part that a run uses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.core.room import check_room
from dhocl.core.taxonomy import Taxonomy
from dhocl.data.files import Files, Images, OnDemand
from dhocl.data.images import channels_first

IN_MEMORY = 2**30  # bytes; a split of files that needs more is decoded on demand
RESIZED = 2**31  # bytes; a split of images that is resized on demand, which is fast, if it needs more

Fetch = Callable[[np.ndarray], np.ndarray]  # (n,) indices -> (n, H, W, 3) uint8


class Table(NamedTuple):
    """Labels and images of a split.

    Args:
        nodes: (N,) node of the true tree that each image shows.
        images: a function (n,) indices -> (n, H, W, 3) uint8, or `Files` or `Resized` for images that may not fit in
            memory.
    """

    nodes: np.ndarray
    images: Fetch | OnDemand


@dataclass(frozen=True)
class Source:
    """A whole data set. Images are read when they are needed.

    Args:
        name: of the data set, in the record of a run.
        levels: names of the levels, coarsest first; the index is the level.
        tree: the true tree, whose nodes are on these levels.
        train: labels and images for training.
        test: labels and images for evaluation; if empty, a part of `train` is held out.
        flip: whether a mirrored image still shows its class.
        given: whether the rows of `train` are a stream already, in order and each labelled at its own level.

    `dhocl.data.adapters` makes one from your own data.
    """

    name: str
    levels: tuple[str, ...]
    tree: Taxonomy
    train: Table
    test: Table
    flip: bool
    given: bool = False


class Split(NamedTuple):
    """Images and labels of the selected training or test part."""

    images: Images  # (N, 3, H, W) uint8
    nodes: Tensor  # (N,) int64, nodes of the true tree

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True)
class Dataset:
    """The selected part of a `Source`, with the same fields. Only stream and evaluator use the true `tree`."""

    name: str
    levels: tuple[str, ...]
    tree: Taxonomy
    train: Split
    test: Split
    flip: bool
    given: bool = False

    @property
    def image_size(self) -> int:
        """Side of the images in pixels."""
        return math.isqrt(self.train.images.nbytes // (3 * len(self.train)))

    def with_fewer_tests(self, n: int, seed: int) -> Dataset:
        """The same with a class-balanced choice of n test images."""
        rows = balanced(self.test.nodes.numpy(), n, Rng(seed, 0xE7A1))
        images = self.test.images.pick(rows) if isinstance(self.test.images, OnDemand) else self.test.images[rows]
        return dataclasses.replace(self, test=Split(images, self.test.nodes[rows]))


@dataclass(frozen=True)
class Selection:
    """The part of a data set that a run uses, and the image size.

    Args:
        data: folder with the published archive or the extracted files.
        image_size: side in pixels; None for the default of the data set.
        samples: size of a class-balanced training subset; None for all.
        test_samples: size of a class-balanced test subset; None for all.
        holdout: evaluate on images held out from the training images instead of the test images.
        seed: of the random subsets.
    """

    data: Path | None = None
    image_size: int | None = None
    samples: int | None = None
    test_samples: int | None = None
    holdout: bool = False
    seed: int = 0


def select(source: Source, selection: Selection) -> Dataset:
    """Draw class-balanced subsets, and decode them if they fit in memory.

    Without test images, `test_samples` training images (default: a fifth) are held out.
    """
    rng = Rng(selection.seed, 0xDA7A)
    train, test = np.arange(len(source.train.nodes)), np.arange(len(source.test.nodes))
    evaluated = source.test
    if selection.holdout or len(test) == 0:
        evaluated = source.train
        held = max(1, len(train) // 5) if selection.test_samples is None else selection.test_samples
        test = balanced(source.train.nodes, held, rng)
        train = np.setdiff1d(train, test)
        if not len(train):
            raise InputError(f"holding out {held} images leaves none to train on: choose fewer test images")
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
        _take(evaluated, test),
        source.flip,
        source.given,
    )


def balanced(classes: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Sorted indices of n rows, as balanced over the classes as possible.

    Each class is shuffled. The first rows of all classes are taken, then the second ones, and so on. The last round is
    a random choice of classes.

    >>> rows = balanced(np.array([7] * 50 + [8] * 3 + [9] * 50), 13, np.random.default_rng(0))
    >>> np.unique(np.array([7] * 50 + [8] * 3 + [9] * 50)[rows], return_counts=True)[1].tolist()
    [5, 3, 5]
    """
    if not 0 < n <= len(classes):
        raise InputError(f"{n} images requested, but there are {len(classes)}: choose a number from 1 to that")
    shuffled = rng.permutation(len(classes))
    order = shuffled[np.argsort(classes[shuffled], kind="stable")]  # by class, random inside
    sizes = np.unique(classes, return_counts=True)[1]
    rank = np.arange(len(classes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = np.lexsort((rng.random(len(classes)), rank))
    return np.sort(order[first[:n]])


def _check_room(need: int, images: int, size: int) -> None:
    what = f"{images:,} images of {size} px"
    check_room(need, what, "choose a smaller `image_size`, or fewer `samples` and `test_samples`")


def _take(table: Table, rows: np.ndarray) -> Split:
    nodes = torch.from_numpy(table.nodes[rows]).long()
    if isinstance(table.images, OnDemand):
        chosen = table.images.pick(rows)
        if chosen.nbytes > (IN_MEMORY if isinstance(chosen, Files) else RESIZED):
            return Split(chosen, nodes)
        _check_room(chosen.nbytes, len(rows), chosen.size)
        pixels = chosen.decoded()
    else:
        if len(rows) and (one := table.images(rows[:1])).ndim == 4:
            _check_room(len(rows) * one.nbytes, len(rows), one.shape[1])
        pixels = table.images(rows)
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8:
        raise InputError(f"images must be (N, H, W, 3) uint8, got {pixels.shape} {pixels.dtype}")
    return Split(channels_first(pixels), nodes)
