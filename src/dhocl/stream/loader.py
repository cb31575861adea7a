"""Batches of images and labels from a plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from dhocl.core.errors import InputError, check_least
from dhocl.core.taxonomy import UNKNOWN, Label
from dhocl.data.dataset import Dataset
from dhocl.data.files import OnDemand, read_ahead


class Stream:
    """Batches of images and labels in the order of a plan. Files are decoded ahead by worker processes.

    Args:
        dataset: the data set.
        table: (samples, 2) image index and level, from `plan`.
        batch: images per batch.
    """

    def __init__(self, dataset: Dataset, table: np.ndarray, batch: int) -> None:
        check_least("batch", batch, 1)
        self._images = dataset.train.images
        self._table = table
        self._batch = batch
        self._nodes = dataset.train.nodes
        tree = dataset.tree
        images, levels = torch.from_numpy(table[:, 0]), table[:, 1]
        places = torch.from_numpy(np.searchsorted(tree.levels, levels))
        columns = tree.paths[dataset.train.nodes[images], places]
        if (columns == UNKNOWN).any():
            sample = int((columns == UNKNOWN).nonzero()[0])
            raise InputError(f"sample {sample} of the plan has level {levels[sample]}, where its image has no class")
        names = {level: [tree.labels[node] for node in tree.nodes(level).tolist()] for level in tree.levels}
        self._labels: list[Label] = [
            names[level][column] for level, column in zip(levels.tolist(), columns.tolist(), strict=True)
        ]

    def __len__(self) -> int:
        return -(-len(self._table) // self._batch)

    @property
    def samples(self) -> int:
        return len(self._table)

    def streamed(self, steps: int) -> Tensor:
        """(samples,) true nodes of the images of the first batches."""
        return self._nodes[torch.from_numpy(self._table[: steps * self._batch, 0])]

    def digest(self) -> str:
        """Hash of order, labels and pixels: runs with the same hash learned from the same stream.

        For files that are decoded on demand, their names and sizes are hashed instead of the pixels.
        """
        content = hashlib.blake2b(np.ascontiguousarray(self._table, dtype="<i8").tobytes(), digest_size=8)
        content.update(repr([tuple(label) for label in self._labels]).encode())
        if isinstance(self._images, OnDemand):
            for mark in self._images.identity():
                content.update(mark)
        else:
            content.update(self._images.contiguous().numpy().data)
        return content.hexdigest()

    def batches(self, start: int = 0) -> Iterator[tuple[Tensor, list[Label]]]:
        """Yields (x (b, 3, H, W) uint8, b labels) from batch `start` on."""
        parts = [slice(step * self._batch, (step + 1) * self._batch) for step in range(start, len(self))]
        images = read_ahead(self._images, (torch.from_numpy(self._table[part, 0]) for part in parts))
        for x, part in zip(images, parts, strict=True):
            yield x, self._labels[part]
