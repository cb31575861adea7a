"""Coloured squares and stripes: two kinds of figure, each in three colours."""

import numpy as np

from dhocl.data import Selection, Source
from dhocl.data.adapters import from_pairs
from dhocl.data.lineage import grow

COLOURS = {"red": (220, 30, 30), "green": (30, 220, 30), "blue": (30, 30, 220)}
LEVELS = ("kind", "figure")


def figure(kind: str, colour: str, rng: np.random.Generator) -> np.ndarray:
    image = rng.integers(0, 80, (32, 32, 3), dtype=np.uint8)
    place = rng.integers(0, 16)
    where = np.s_[place : place + 16, place : place + 16] if kind == "square" else np.s_[place % 4 :: 4]
    image[where] = COLOURS[colour]
    return image


def figures(selection: Selection) -> Source:
    """Coloured squares and stripes."""
    rng = np.random.default_rng(0)
    lineages = [(kind, f"{colour} {kind}") for kind in ("square", "stripes") for colour in COLOURS]
    tree, _ = grow(lineages)

    def pairs(count: int) -> list[tuple[np.ndarray, tuple[str, str]]]:
        chosen = [lineages[row % len(lineages)] for row in range(count)]
        return [(figure(kind, name.split()[0], rng), (name, "figure")) for kind, name in chosen]

    return from_pairs(pairs(240), pairs(60), tree, LEVELS, image_size=selection.image_size or 32)
