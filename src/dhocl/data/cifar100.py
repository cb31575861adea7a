"""CIFAR-100: 100 classes under 20 superclasses under 8 groups, 60,000 images of 32 pixels.

Classes and superclasses are those of CIFAR-100, the groups those of the HALO paper. The files are checked against the
tree in `trees/cifar100.tsv`.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np

from dhocl.core.errors import InputError
from dhocl.data import cache
from dhocl.data.archive import Archive, locate
from dhocl.data.dataset import Selection, Source, Table
from dhocl.data.lineage import bundled, grow, readable
from dhocl.data.resized import Resized

LEVELS = ("group", "superclass", "class")
SIZE = 32
ORIGIN = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
MD5 = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}


def read(selection: Selection) -> Source:
    archive = locate(selection.data, "cifar-100-python", ORIGIN)
    rows = bundled("cifar100", LEVELS)
    train, train_classes, test, test_classes = cache.arrays(
        cache.key("cifar100", archive.stamp(tuple(MD5))),
        ("train", "train-classes", "test", "test-classes"),
        lambda: _decode(archive, rows),
    )
    tree, leaves = grow([readable(row[level]) for level in LEVELS] for row in rows)
    size = selection.image_size or SIZE
    return Source(
        "cifar100",
        LEVELS,
        tree,
        Table(leaves[train_classes], Resized(train, size)),
        Table(leaves[test_classes], Resized(test, size)),
        flip=True,
    )


def _decode(archive: Archive, rows: Sequence[dict[str, str]]) -> list[np.ndarray]:
    """Images and class numbers of both splits. InputError if the files disagree with the bundled tree."""
    contents = dict(archive.read(tuple(MD5), MD5))
    meta = _unpickle(contents["meta"], "meta", archive)
    fine, coarse = (
        [name.decode() for name in _field(meta, field, "meta", archive)]
        for field in (b"fine_label_names", b"coarse_label_names")
    )
    if fine != [row["class"] for row in rows]:
        raise _disagrees(archive, "meta", "its class names differ")
    decoded = []
    for part in ("train", "test"):
        table = _unpickle(contents.pop(part), part, archive)
        pixels = np.asarray(_field(table, b"data", part, archive))
        classes = np.asarray(_field(table, b"fine_labels", part, archive))
        if pixels.dtype != np.uint8 or pixels.shape != (len(classes), 3 * SIZE * SIZE):
            raise _disagrees(archive, part, f"its images are {pixels.dtype} of shape {pixels.shape}")
        superclasses = [coarse[number] for number in _field(table, b"coarse_labels", part, archive)]
        if superclasses != [rows[number]["superclass"] for number in classes]:
            raise _disagrees(archive, part, "a class has another superclass")
        decoded += [pixels.reshape(-1, 3, SIZE, SIZE).transpose(0, 2, 3, 1), classes.astype(np.int64)]
    return decoded


def _disagrees(archive: Archive, file: str, how: str) -> InputError:
    return InputError(f"{file} in {archive.path} does not fit the tree of CIFAR-100 ({how}): download it again")


def _field(table: Any, name: bytes, file: str, archive: Archive) -> Any:
    if not isinstance(table, dict) or name not in table:
        raise _disagrees(archive, file, f"it has no {name.decode()}")
    return table[name]


def _unpickle(content: bytes, file: str, archive: Archive) -> Any:
    try:
        return _ArraysOnly(BytesIO(content), encoding="bytes").load()
    except Exception as problem:  # a damaged pickle may raise anything; _ArraysOnly refuses a malicious one
        raise InputError(
            f"{file} in {archive.path} is refused ({problem}): expected a pickle of plain arrays and lists; "
            "download it again"
        ) from None


class _ArraysOnly(pickle.Unpickler):
    """Loads containers, numbers, text and arrays only: an unrestricted pickle may call any function."""

    admitted = {  # noqa: RUF012
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.admitted[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it needs {module}.{name}") from None
