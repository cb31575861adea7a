"""WordNet as a knowledge source: what kind of thing an English noun is."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from dhocl.data.wordnet import read_index, read_nouns
from dhocl.errors import InputError
from dhocl.knowledge.source import Link
from dhocl.taxonomy import Label

WNID = re.compile(r"\(n(\d{8})\)$")  # a name may say which sense is meant: "crane (n02012849)"
PLURALS = (
    ("ies", "y"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("xes", "x"),
    ("ses", "s"),
    ("zes", "z"),
    ("men", "man"),
    ("s", ""),
)

Meanings = Mapping[int, list[Label]]  # synset -> the known classes that may mean it


class WordNet:
    """Links a class to the nearest known one above it in WordNet, and known ones below it to itself.

    `folder` is the `dict` of WordNet 3.0 or 3.1. A class is looked up by its name, in any case and as a plural too. Of
    several senses that is taken which has a known class of a coarser level above it; of several such the most frequent
    one, where senses that are single things (Stephen Crane) come after those that are kinds. "Nearest" is by the number
    of steps, over all of a synset's hypernyms.
    """

    def __init__(self, folder: str | Path) -> None:
        self._nouns = read_nouns(_content(folder, "data.noun"), f"data.noun in {folder}")
        self._index = read_index(_content(folder, "index.noun"), f"index.noun in {folder}")
        named = {offset for offsets in self._index.values() for offset in offsets}
        named.update(offset for synset in self._nouns.values() for offset in synset.above)
        if missing := named - self._nouns.keys():
            raise InputError(f"{folder}: data.noun lacks the noun {min(missing):08}; take both files from one WordNet")
        self._senses = cache(self._find_senses)
        self._above = cache(self._find_above)

    def query(self, label: Label, known: Collection[Label]) -> list[Link]:
        own = set(self._senses(label.name))
        if not own:
            return []
        meanings: dict[int, list[Label]] = {}
        for other in {label: None, **dict.fromkeys(known)}:
            for sense in self._senses(other.name):
                meanings.setdefault(sense, []).append(other)
        parent = self._parent(label, meanings)
        links = [] if parent is None else [(label, parent)]
        for other in known:
            below = other.level > label.level and any(
                not own.isdisjoint(self._above(sense)) for sense in self._senses(other.name)
            )
            if below and self._parent(other, meanings) == label:
                links.append((other, label))
        return links

    def _parent(self, label: Label, meanings: Meanings) -> Label | None:
        for sense in self._senses(label.name):
            for offset in self._above(sense):
                found = [
                    other
                    for other in meanings.get(offset, [])
                    if other.level < label.level and self._can_mean(other, offset, meanings)
                ]
                if found:
                    return max(found, key=lambda other: other.level)  # padded trees repeat a name at several levels
        return None

    def _can_mean(self, label: Label, offset: int, meanings: Meanings) -> bool:
        """The sense is the one that the classes above a class speak for; where none does, each of its senses can be."""
        for sense in self._senses(label.name):
            if any(other.level < label.level for above in self._above(sense) for other in meanings.get(above, [])):
                return sense == offset
        return True

    def _find_senses(self, name: str) -> tuple[int, ...]:
        """The synsets of a name, the likeliest first."""
        if (told := WNID.search(name)) and int(told[1]) in self._nouns:
            return (int(told[1]),)
        word = "_".join(name.lower().split())
        for form in (word, *(word.removesuffix(many) + one for many, one in PLURALS if word.endswith(many))):
            if form in self._index:
                return tuple(sorted(self._index[form], key=lambda offset: self._nouns[offset].instance))
        return ()

    def _find_above(self, offset: int) -> tuple[int, ...]:
        """A synset and all above it, by the number of steps."""
        found = {offset: None}
        layer = [offset]
        while layer:
            layer = [above for below in layer for above in self._nouns[below].above if above not in found]
            found |= dict.fromkeys(layer)
        return tuple(found)


def _content(folder: str | Path, name: str) -> bytes:
    try:
        return (Path(folder) / name).read_bytes()
    except OSError:
        raise InputError(f"{folder} has no readable {name}: give the folder `dict` of WordNet 3.0 or 3.1") from None
