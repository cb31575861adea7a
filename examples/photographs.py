"""Draw a folder of pictures to try dhocl with: birds of four species, some named by their family only.

python examples/photographs.py [FOLDER]

FOLDER (default: photos) holds the pictures, labels.csv and tree.tsv. The folder `new` beside it holds one picture of
each species without a label.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

EACH = 18  # pictures of a species; every third is named by its family
SIZE = 120  # pixels
BIRDS = {  # species -> family, back, breast
    "blackbird": ("Turdidae", (35, 30, 30), (60, 50, 45)),
    "song thrush": ("Turdidae", (130, 95, 60), (235, 220, 180)),
    "blue tit": ("Paridae", (60, 120, 200), (240, 220, 70)),
    "great tit": ("Paridae", (90, 130, 60), (245, 205, 30)),
}


def draw(species: str, rng: np.random.Generator) -> Image.Image:
    """A bird of random size and position in front of leaves."""
    _, back, breast = BIRDS[species]
    leaves = rng.integers((60, 100, 50), (130, 180, 110), (12, 12, 3)).astype(np.uint8)
    image = Image.fromarray(leaves).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    canvas = ImageDraw.Draw(image)
    x, y = rng.integers(45, 75, 2).tolist()
    wide, high = rng.integers(26, 36), rng.integers(18, 26)
    canvas.ellipse((x - wide, y - high, x + wide, y + high), fill=back)
    canvas.ellipse((x - wide // 2, y, x + wide, y + high), fill=breast)
    canvas.ellipse((x + wide - 14, y - high - 8, x + wide + 8, y - high + 14), fill=back)
    canvas.polygon(
        [(x + wide + 6, y - high), (x + wide + 18, y - high + 3), (x + wide + 6, y - high + 7)], (230, 150, 30)
    )
    return image.filter(ImageFilter.GaussianBlur(1))


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for number in range(EACH):
        for species, (family, *_) in BIRDS.items():
            name, level = (family, "family") if number % 3 == 2 else (species, "species")
            path = Path(level, name, f"{species.replace(' ', '-')}-{number:02d}.jpg")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            draw(species, rng).save(folder / path)
            rows.append((path, name, level, f"2026-05-{number + 1:02d}"))
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "level", "time"), *rows])
    families = dict.fromkeys(family for family, *_ in BIRDS.values())
    tree = [("child", "level", "parent"), *((family, "family", "") for family in families)]
    tree += [(species, "species", family) for species, (family, *_) in BIRDS.items()]
    (folder / "tree.tsv").write_text("".join("\t".join(row) + "\n" for row in tree))
    new = folder.parent / "new"
    new.mkdir(exist_ok=True)
    for species in BIRDS:
        draw(species, rng).save(new / f"{species.replace(' ', '-')}.jpg")
    print(f"{len(rows)} pictures in {folder}, {len(BIRDS)} without a label in {new}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "photos"))
