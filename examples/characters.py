"""Draw a folder of pictures with mixed ranks from the data set `glyphs`: 12 characters of three scripts.

python examples/characters.py [FOLDER]

FOLDER (default: photos) holds the pictures, tree.tsv and labels.csv. Of ten labels, six name the character, two only
its base and two only its script. Rows with `test` in the column `split` are for `dhocl evaluate`. The folder `new`
beside it has pictures without a label; their files are named by the character.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from dhocl.core.taxonomy import Taxonomy
from dhocl.data import Selection, check
from dhocl.data.files import Files

SCRIPTS = ("Latin", "Arrows", "Geometric Shapes")
BASES, CHARACTERS = 2, 2  # of each script, of each base
LEARNED, TESTED, NEW = 20, 6, 4  # pictures of a character
RANKS = (2, 2, 1, 2, 0, 2, 2, 1, 2, 0)  # of the labels: character, base or script


def main(folder: Path) -> None:
    source = check("glyphs", Selection())
    assert not isinstance(source.train.images, Files)
    assert not isinstance(source.test.images, Files)
    tree, rows, written = source.tree, [], set()
    new = folder.parent / "new"
    for place in (folder, new):
        place.mkdir(parents=True, exist_ok=True)
    for leaf in chosen(tree):
        lineage = [tree.labels[node].name for node in reversed(tree.lineage(leaf))]
        short = "-".join(lineage[2].lower().split()[1:])  # à LATIN SMALL LETTER A WITH GRAVE: without the à
        written |= set(zip(lineage, source.levels, ("", *lineage), strict=False))
        learned = source.train.images(np.flatnonzero(source.train.nodes == leaf)[:LEARNED])
        others = source.test.images(np.flatnonzero(source.test.nodes == leaf)[: TESTED + NEW])
        for number, picture in enumerate([*learned, *others[:TESTED]]):
            rank, split = (RANKS[number % len(RANKS)], "train") if number < LEARNED else (2, "test")
            path = f"{short}-{number:02d}.png"
            Image.fromarray(picture).save(folder / path)
            rows.append((path, lineage[rank], source.levels[rank], split))
        for number, picture in enumerate(others[TESTED:]):
            Image.fromarray(picture).save(new / f"{short}-{number}.png")
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "label", "level", "split"), *rows])
    lines = [("child", "level", "parent"), *sorted(written)]
    (folder / "tree.tsv").write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
    print(f"{len(rows)} pictures in {folder}, {len(list(new.iterdir()))} without a label in {new}")


def chosen(tree: Taxonomy) -> Iterator[int]:
    """The first characters of the first bases of each script."""
    for script in tree.nodes(0).tolist():
        if tree.labels[script].name in SCRIPTS:
            for base in below(tree, script)[:BASES]:
                yield from below(tree, base)[:CHARACTERS]


def below(tree: Taxonomy, parent: int) -> list[int]:
    return [node for node in range(len(tree)) if tree.parent(node) == parent]


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "photos"))
