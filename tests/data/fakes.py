"""Small data sets in the published layouts, as archives of each kind or as a folder."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from dhocl.data.lineage import carried

KINDS = ("folder", ".tar.gz", ".tgz", ".tar.xz", ".tar")
Files = dict[str, bytes]


def pack(files: Mapping[str, bytes], data: Path, root: str, kind: str) -> Path:
    """The files below `root`, in the folder `data`; archives hold them in reverse order."""
    data.mkdir(exist_ok=True)
    if kind == "folder":
        for name, content in files.items():
            path = data / root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return data / root
    archive = data / f"{root}{kind}"
    compression = {".tar.gz": "gz", ".tgz": "gz", ".tar.xz": "xz", ".tar": ""}[kind]
    with tarfile.open(archive, f"w:{compression}") as tar:  # type: ignore[call-overload]
        for name, content in reversed(files.items()):
            add(tar, f"{root}/{name}", content)
    return archive


def add(tar: tarfile.TarFile, name: str, content: bytes = b"", **how: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for field, value in how.items():
        setattr(member, field, value)
    tar.addfile(member, io.BytesIO(content))


def python2_dict(fields: Mapping[str, list[str]]) -> bytes:
    """A dictionary of lists as Python 2 pickled it, with its 8 bit strings."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    items = b"".join(text(key) + b"](" + b"".join(map(text, values)) + b"e" for key, values in fields.items())
    return b"\x80\x02}(" + items + b"u."


def cifar(per_class: int = 2, seed: int = 0) -> Files:
    rows = carried("cifar100", ("superclass", "class"))
    coarse = sorted({row["superclass"] for row in rows})
    rng = np.random.default_rng(seed)
    fine = {"train": rng.permutation(np.repeat(np.arange(100), per_class)), "test": rng.permutation(100)}
    files = {"meta": python2_dict({"fine_label_names": [row["class"] for row in rows], "coarse_label_names": coarse})}
    for part, classes in fine.items():
        table = {
            b"data": rng.integers(0, 256, (len(classes), 3072), dtype=np.uint8),
            b"fine_labels": classes.tolist(),
            b"coarse_labels": [coarse.index(rows[number]["superclass"]) for number in classes],
        }
        files[part] = pickle.dumps(table, protocol=4)
    return files


def jpeg(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(content, "JPEG", quality=95)
    return content.getvalue()


def cub_colour(species: int, test: bool) -> tuple[int, int, int]:
    return (species, 255 - species, 200 if test else 100)


def cub() -> Files:
    """A training and a test image of each species, told by their colours."""
    names = [row["class"] for row in carried("cub200", ("class",))]
    images = [f"{name}/{part}.jpg" for name in names for part in ("a", "b")]
    lists = {
        "classes.txt": names,
        "images.txt": images,
        "image_class_labels.txt": [str(row // 2 + 1) for row in range(len(images))],
        "train_test_split.txt": [str((row + 1) % 2) for row in range(len(images))],
    }
    files = {
        file: "".join(f"{row} {value}\n" for row, value in enumerate(values, 1)).encode()
        for file, values in lists.items()
    }
    for row, name in enumerate(images):
        files[f"images/{name}"] = jpeg(24, 16, cub_colour(row // 2, row % 2 == 1))
    return files
