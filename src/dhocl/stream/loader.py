"""From a plan to batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from dhocl.data.dataset import Dataset
from dhocl.errors import InputError
from dhocl.taxonomy import UNKNOWN, Label


class Stream:
    """Batches of images and labels in the order of a plan; the next one is gathered while the last is learned."""

    def __init__(self, dataset: Dataset, table: np.ndarray, batch: int) -> None:
        if batch < 1:
            raise InputError(f"--batch {batch}: at least 1")
        self._images = dataset.train.images
        self._table = table
        self._batch = batch
        tree = dataset.tree
        images, levels = torch.from_numpy(table[:, 0]), table[:, 1]
        places = torch.from_numpy(np.searchsorted(tree.levels, levels))
        columns = tree.paths[dataset.train.nodes[images], places]
        if (columns == UNKNOWN).any():
            sample = int((columns == UNKNOWN).nonzero()[0])
            raise InputError(f"sample {sample} of the plan asks for level {levels[sample]}, which its image lacks")
        self._labels: list[Label] = [
            tree.labels[int(tree.nodes(int(level))[column])] for level, column in zip(levels, columns, strict=True)
        ]

    def __len__(self) -> int:
        return -(-len(self._table) // self._batch)

    @property
    def samples(self) -> int:
        return len(self._table)

    def digest(self) -> str:
        """A fingerprint of order, labels and pixels: two runs with the same one saw the same stream."""
        content = hashlib.blake2b(np.ascontiguousarray(self._table, dtype="<i8").tobytes(), digest_size=8)
        content.update(repr([tuple(label) for label in self._labels]).encode())
        content.update(self._images.contiguous().numpy().data)
        return content.hexdigest()

    def batches(self, start: int = 0) -> Iterator[tuple[Tensor, list[Label]]]:
        """(x (b, 3, H, W) uint8, b labels) for each step after the first `start`."""
        with ThreadPoolExecutor(max_workers=1) as ahead:
            pending = ahead.submit(self._gather, start)
            for step in range(start, len(self)):
                batch = pending.result()
                if step + 1 < len(self):
                    pending = ahead.submit(self._gather, step + 1)
                yield batch

    def _gather(self, step: int) -> tuple[Tensor, list[Label]]:
        rows = slice(step * self._batch, (step + 1) * self._batch)
        return self._images[torch.from_numpy(self._table[rows, 0])], self._labels[rows]
