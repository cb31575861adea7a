"""Names of classes: one form for each, and nothing in them that can not be seen."""

from __future__ import annotations

from unicodedata import bidirectional, category, combining, normalize

LONGEST = 200  # characters of a name
NON_JOINER, JOINER = "\u200c", "\u200d"
VIRAMA = 9  # combining class
# Letters and marks without a glyph, which the categories do not tell: fillers, blanks, variation selectors.
BLANK = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x180B, 0x180C, 0x180D, 0x180F}
BLANK |= {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}


def clean_name(text: str) -> str:
    """Normalise a name: composed characters, single spaces. Control and invisible characters are refused.

    >>> clean_name("  Parus\\u00a0 major ")
    'Parus major'
    """
    name = " ".join(normalize("NFC", text).split())
    if not name:
        raise ValueError("the name is empty")
    if len(name) > LONGEST:
        raise ValueError(f"the name has more than {LONGEST} characters")
    if any(category(c) in ("Cc", "Cs", "Cn") for c in name):
        raise ValueError("control, surrogate and unassigned characters are not allowed in a name")
    if any(_invisible(c) and not _joins(name, place) for place, c in enumerate(name)):
        raise ValueError("invisible and bidi characters are not allowed in a name: remove them")
    return name


def _invisible(character: str) -> bool:
    return category(character) == "Cf" or ord(character) in BLANK


def _joins(name: str, place: int) -> bool:
    """Whether this is a joiner that changes how its neighbours look, as scripts of India and Arabic letters need."""
    if name[place] not in (NON_JOINER, JOINER) or not 0 < place < len(name) - 1:
        return False
    before, after = name[place - 1], name[place + 1]
    if combining(before) == VIRAMA:
        return category(after).startswith("L")
    return name[place] == NON_JOINER and bidirectional(before) == bidirectional(after) == "AL"
