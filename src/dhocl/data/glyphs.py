"""The data set that comes with the package: pictures of characters, under Unicode's own taxonomy.

A character belongs to a base (é, ê and E to Latin e; ← and ↚ to the leftwards arrows), a base to a script.
Names and kinship come from the Unicode database; only the ranges are chosen here. Test pictures are set in
faces that no training picture uses.
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
from dhocl.data.images import resize, watched
from dhocl.data.letterforms import DISTINCT, distinct, shape, shared
from dhocl.data.lineage import grow
from dhocl.data.rendering import STYLE, render

Lineage = tuple[str, str, str]

LEVELS = ("script", "base", "character")
SIZE = 64
SEED = 0  # the pictures are the same for everyone; a run's seed only picks among them
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
    """`per_class` counts the training and the test pictures of a character."""
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
        Table(np.repeat(leaves, per_class[0]), lambda wanted: resize(train[wanted], size)),
        Table(np.repeat(leaves, per_class[1]), lambda wanted: resize(test[wanted], size)),
        flip=False,
    )


def lineages(scripts: Sequence[Script]) -> dict[str, Lineage]:
    """Script, base and name of the letters in ranges of letters, and of the symbols in the others.

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
    """The characters that all faces have, that can be told apart, and that share their base with another."""
    faces = (*TRAIN_FACES, *TEST_FACES)
    drawable = shared(faces)
    kept = distinct([character for character in known if character in drawable], faces)
    members = Counter(known[character][1] for character in kept)
    return [character for character in kept if members[known[character][1]] > 1]


def _build(known: Mapping[str, Lineage], per_class: tuple[int, int]) -> list[np.ndarray]:
    """Code points, training pictures, test pictures; the latter two character by character."""
    characters = choose(known)
    parts = []
    for part, (faces, count) in enumerate(zip((TRAIN_FACES, TEST_FACES), per_class, strict=True)):
        pictures = [
            _pictures(character, faces, count, part)
            for character in watched(characters, len(characters) * count, "drawing characters")
        ]
        parts.append(np.concatenate(pictures))
    return [np.array([ord(character) for character in characters]), *parts]


def _pictures(character: str, faces: Sequence[str], count: int, part: int) -> np.ndarray:
    """Each character has its own randomness, so its pictures do not depend on which others are chosen."""
    shapes = [shape(character, face) for face in faces]
    rng = np.random.default_rng([SEED, ord(character), part])
    return render([shapes[row % len(faces)] for row in range(count)], SIZE, rng)
