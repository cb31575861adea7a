"""Folders of small photographs with labels, and a model that has learned them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from dhocl.checks import LEAVES, pictures

KINDS = {"robin": "bird", "crow": "bird", "cod": "fish", "carp": "fish"}
LEVELS = ("kind", "species")
TINY = ("--backbone", "tiny", "--image-size", "32")


def draw(folder: Path, names: Sequence[str], seed: int = 0) -> list[Path]:
    """A picture for each name of a species."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    images = pictures([LEAVES.index(name) for name in names], rng).permute(0, 2, 3, 1).numpy()
    paths = [folder / f"{seed}-{place:04d}.png" for place in range(len(names))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


def labelled(folder: Path, n: int, seed: int = 0) -> Path:
    """A folder with labels.csv and tree.tsv. Every fourth photograph is labelled by its kind only."""
    names = [LEAVES[number % 4] for number in range(n)]
    rows = [("path", "label", "level")]
    for number, (path, name) in enumerate(zip(draw(folder / "images", names, seed), names, strict=True)):
        coarse = number % 4 == 3 - number // 4 % 4
        label = (KINDS[name], "kind") if coarse else (name, "species")
        rows.append((str(path.relative_to(folder)), *label))
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    tree = ["child\tlevel\tparent", "bird\tkind\t", "fish\tkind\t"]
    tree += [f"{species}\tspecies\t{kind}" for species, kind in KINDS.items()]
    (folder / "tree.tsv").write_text("\n".join(tree))
    return folder
