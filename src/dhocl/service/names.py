"""Names of classes: one form for each, and nothing in them that can not be seen."""

from __future__ import annotations

import re
from unicodedata import category, combining, normalize

LONGEST = 200  # characters of a name
NON_JOINER, JOINER = "\u200c", "\u200d"
VIRAMA = 9  # combining class
# Letters, marks and symbols without a glyph, which the categories do not tell: fillers, blanks, selectors, joiners.
BLANK = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x2D7F, 0x3164, 0xFFA0, 0x180B, 0x180C, 0x180D, 0x180F}
BLANK |= {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
BLANK |= {0x1107F, 0x13441, 0x13442, 0x16FE4, 0x1BC9D, 0x1D159}
# Joining types of Unicode, which `unicodedata` lacks. Arabic letters that join to the next one:
DUAL = re.compile(
    "[\u0620\u0626\u0628\u062a-\u062e\u0633-\u063f\u0641-\u0647\u0649-\u064a\u066e-\u066f\u0678-\u0687\u069a-\u06bf"
    "\u06c1-\u06c2\u06cc\u06ce\u06d0-\u06d1\u06fa-\u06fc\u06ff\u0750-\u0758\u075c-\u076a\u076d-\u0770\u0772\u0775-\u0777"
    "\u077a-\u077f\u0886\u0889-\u088d\u08a0-\u08a9\u08af-\u08b0\u08b3-\u08b8\u08ba-\u08c8]"
)
ARABIC = re.compile("[\u0620-\u06ff\u0750-\u077f\u0870-\u08ff]")
SINGLE = set("\u0621\u0640\u0674\u06e5\u06e6\u0883\u0884\u0885\u0887\u08ad\u08c9")  # do not join to the one before


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
    """Whether this is a joiner that changes how its neighbours look, as scripts of India and Arabic letters need.

    The rules are those of RFC 5892, appendix A, for Arabic and without marks after the joiner.
    """
    if name[place] not in (NON_JOINER, JOINER) or not 0 < place < len(name) - 1:
        return False
    before, after = name[:place], name[place + 1]
    if not category(after).startswith("L"):
        return False
    if combining(before[-1]) == VIRAMA:
        return True
    letter = next((c for c in reversed(before) if category(c) != "Mn"), "")
    return name[place] == NON_JOINER and bool(DUAL.match(letter) and ARABIC.match(after)) and after not in SINGLE
