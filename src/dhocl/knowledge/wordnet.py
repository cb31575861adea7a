"""WordNet as a knowledge source for English nouns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label
from dhocl.data.wordnet import read_exceptions, read_index, read_nouns
from dhocl.knowledge.source import Link

WNID = re.compile(r"\(n(\d{8})\)$")  # a name may include its synset: "crane (n02012849)"
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


class WordNet:
    """Links a class to its known hypernym, and known hyponyms to the class.

    Args:
        folder: `dict` of WordNet 3.0 or 3.1.

    A class is looked up by its name, in any case and as a plural too. Candidates for its parent are the known classes
    of coarser levels that are hypernyms of any of its senses. They are ranked by, in this order: senses that are
    concepts before individuals (Stephen Crane); finest level; most frequent sense; fewest steps; least ambiguous name.
    """

    def __init__(self, folder: str | Path) -> None:
        self._nouns = read_nouns(_content(folder, "data.noun"), f"data.noun in {folder}")
        self._index = read_index(_content(folder, "index.noun"), f"index.noun in {folder}")
        exceptions = Path(folder) / "noun.exc"  # irregular plurals; some copies lack it
        self._exceptions = read_exceptions(exceptions.read_bytes()) if exceptions.is_file() else {}
        named = {offset for offsets in self._index.values() for offset in offsets}
        named.update(offset for synset in self._nouns.values() for offset in synset.above)
        if missing := named - self._nouns.keys():
            raise InputError(f"{folder}: data.noun lacks the noun {min(missing):08}; take both files from one WordNet")
        self._senses = cache(self._find_senses)
        self._above = cache(self._find_above)

    def query(self, label: Label, known: Collection[Label]) -> list[Link]:
        own = {sense for _, sense in self._senses(label.name)}
        if not own:
            return []
        place = Vocabulary([*known, label], self._senses, self._above).place
        links = [(label, above[1])] if (above := place(label)) else []
        for other in known:
            if other.level > label.level and any(
                not own.isdisjoint(self._above(sense)) for _, sense in self._senses(other.name)
            ):
                above = place(other)
                if above and above[1] == label:
                    links.append((other, label))
        return links

    def _find_senses(self, name: str) -> tuple[tuple[bool, int], ...]:
        """(is an individual, synset) for each sense of a name, the most frequent first."""
        if (match := WNID.search(name)) and int(match[1]) in self._nouns:
            return ((False, int(match[1])),)
        word = "_".join(name.lower().split())
        regular = (word.removesuffix(many) + one for many, one in PLURALS if word.endswith(many))
        for form in (word, *self._exceptions.get(word, ()), *regular):
            if form in self._index:
                return tuple((self._nouns[offset].instance, offset) for offset in self._index[form])
        return ()

    def _find_above(self, offset: int) -> tuple[int, ...]:
        """A synset and all its hypernyms, by the number of steps."""
        found = {offset: None}
        layer = [offset]
        while layer:
            layer = [above for below in layer for above in self._nouns[below].above if above not in found]
            found |= dict.fromkeys(layer)
        return tuple(found)


class Vocabulary:
    """Resolves the senses of classes by their known hypernyms."""

    def __init__(
        self,
        classes: Iterable[Label],
        senses: Callable[[str], tuple[tuple[bool, int], ...]],
        above: Callable[[int], tuple[int, ...]],
    ) -> None:
        self._senses, self._above = senses, above
        self._meaning: dict[int, list[Label]] = {}  # synset -> classes with this sense
        for label in dict.fromkeys(classes):
            for _, sense in senses(label.name):
                self._meaning.setdefault(sense, []).append(label)
        self.place = cache(self._place)

    def _place(self, label: Label) -> tuple[int, Label] | None:
        """The sense of a class and its parent in that sense; None if no sense has a known hypernym."""
        found = [
            (instance, -other.level, order, steps, len(self._senses(other.name)), sense, other)
            for order, (instance, sense) in enumerate(self._senses(label.name))
            for steps, offset in enumerate(self._above(sense))
            for other in self._meaning.get(offset, [])
            if other.level < label.level and self._can_mean(other, offset)
        ]
        return min(found)[-2:] if found else None

    def _can_mean(self, label: Label, offset: int) -> bool:
        """Whether a sense is possible: the one that the parent of the class determines, or any if it has no parent."""
        place = self.place(label)
        return place is None or place[0] == offset


def _content(folder: str | Path, name: str) -> bytes:
    try:
        return (Path(folder) / name).read_bytes()
    except OSError:
        raise InputError(f"{folder} has no readable {name}: give the folder `dict` of WordNet 3.0 or 3.1") from None
