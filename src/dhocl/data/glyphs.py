"""The built-in data set: rendered Unicode characters.

A character belongs to a base (é, ê and E to Latin e; ← and ↚ to the leftwards arrows), a base to a script. Names and
bases come from the Unicode database; only the ranges are chosen here. Test images use other font faces than training
images.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import PIL
from PIL import features

from dhocl.data import cache
from dhocl.data.dataset import Selection, Source, Table
from dhocl.data.images import with_progress
from dhocl.data.letterforms import DISTINCT, distinct, shape, shared
from dhocl.data.lineage import grow
from dhocl.data.rendering import STYLE, render
from dhocl.data.resized import Resized

Lineage = tuple[str, str, str]

LEVELS = ("script", "base", "character")
SIZE = 64
SEED = 0  # of the images; the seed of a run only selects among them
TRAIN_FACES = (
    "Sans",
    "Sans-Oblique",
    "Sans-BoldOblique",
    "SansMono",
    "SansMono-Bold",
    "SansMono-BoldOblique",
    "Serif",
    "Serif-Bold",
    "Serif-Italic",
)
TEST_FACES = ("Sans-Bold", "SansMono-Oblique", "Serif-BoldItalic")


def _letter(character: str) -> str:
    """Without accent and case: É -> e."""
    return unicodedata.normalize("NFD", character)[0].casefold()


def _first_word(character: str) -> str:
    """RIGHTWARDS ARROW WITH TAIL -> rightwards."""
    return unicodedata.name(character).split()[0].lower()


def _noun(character: str) -> str:
    """WHITE SQUARE WITH ROUNDED CORNERS -> square."""
    return re.split(" WITH | CONTAINING ", unicodedata.name(character))[0].split()[-1].lower()


class Script(NamedTuple):
    name: str
    ranges: str  # first and last character of each range
    base: Callable[[str], str]


SCRIPTS = (
    Script("Latin", "AZ az àÿ", _letter),
    Script("Greek", "Αώ ϐϖ", _letter),
    Script("Cyrillic", "Аџ", _letter),
    Script("Armenian", "ԱԼ ալ", _letter),
    Script("Arrows", "←↨", _first_word),
    Script("Mathematical Operators", "⊂⊡", _first_word),
    Script("Geometric Shapes", "■△ ◆●", _noun),
)


def read(selection: Selection, scripts: Sequence[Script] = SCRIPTS, per_class: tuple[int, int] = (40, 15)) -> Source:
    """`per_class`: training and test images of each character."""
    known = lineages(scripts)
    drawn_by = (PIL.__version__, features.version("freetype2"))
    codes, train, test = cache.arrays(
        cache.key("glyphs", list(known), per_class, SEED, SIZE, STYLE, DISTINCT, drawn_by),
        ("characters", "train", "test"),
        lambda: _build(known, per_class),
    )
    tree, leaves = grow(known[chr(code)] for code in codes)
    size = selection.image_size or SIZE
    return Source(
        "glyphs",
        LEVELS,
        tree,
        Table(np.repeat(leaves, per_class[0]), Resized(train, size)),
        Table(np.repeat(leaves, per_class[1]), Resized(test, size)),
        flip=False,
    )


def lineages(scripts: Sequence[Script]) -> dict[str, Lineage]:
    """Character -> script, base and name, for the letters or symbols in the ranges of the scripts.

    >>> lineages([Script("Latin", "àè", _letter)])["è"]
    ('Latin', 'Latin e', 'è LATIN SMALL LETTER E WITH GRAVE')
    """
    known = {}
    for script in scripts:
        kind = "L" if script.base is _letter else "S"
        for first, last in map(tuple, script.ranges.split()):
            for character in map(chr, range(ord(first), ord(last) + 1)):
                if unicodedata.category(character)[0] == kind:
                    base = f"{script.name} {script.base(character)}"
                    name = f"{character} {unicodedata.name(character)}"
                    known[character] = (script.name, base, name)
    return known


def choose(known: Mapping[str, Lineage]) -> list[str]:
    """The characters that all faces have, that look different, and that share their base with another one."""
    faces = (*TRAIN_FACES, *TEST_FACES)
    drawable = shared(faces)
    kept = distinct([character for character in known if character in drawable], faces)
    members = Counter(known[character][1] for character in kept)
    return [character for character in kept if members[known[character][1]] > 1]


def _build(known: Mapping[str, Lineage], per_class: tuple[int, int]) -> list[np.ndarray]:
    """Code points, training images and test images; images in the order of the characters."""
    characters = choose(known)
    parts = []
    for part, (faces, count) in enumerate(zip((TRAIN_FACES, TEST_FACES), per_class, strict=True)):
        pictures = [
            _pictures(character, faces, count, part)
            for character in with_progress(characters, len(characters) * count, "drawing characters")
        ]
        parts.append(np.concatenate(pictures))
    return [np.array([ord(character) for character in characters]), *parts]


def _pictures(character: str, faces: Sequence[str], count: int, part: int) -> np.ndarray:
    """(count, SIZE, SIZE, 3) uint8. A generator per character, so that images do not depend on the chosen set."""
    shapes = [shape(character, face) for face in faces]
    rng = np.random.default_rng([SEED, ord(character), part])
    return render([shapes[row % len(faces)] for row in range(count)], SIZE, rng)
