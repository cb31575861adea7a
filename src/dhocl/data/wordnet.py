"""Nouns of WordNet and their hypernyms, from the published `data.noun`, `index.noun` and `noun.exc`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from dhocl.core.errors import InputError

T = TypeVar("T")

HYPERNYMS = ("@", "@i")  # a kind of, an instance of


class Synset(NamedTuple):
    word: str  # the first
    above: tuple[int, ...]  # offsets of its hypernyms
    instance: bool = False  # an individual, such as a person or a ship


def read_nouns(content: bytes, what: str) -> dict[int, Synset]:
    """Offset -> synset. Offsets are read from the lines, because line ends differ between copies."""
    return dict(_lines(content, what, lambda text: _synset(text.partition(" | ")[0].split())))


def read_index(content: bytes, what: str) -> dict[str, tuple[int, ...]]:
    """Word, in lower case and with underscores -> offsets of its synsets, the most frequent sense first."""
    return dict(_lines(content, what, lambda text: _senses(text.split())))


def read_exceptions(content: bytes) -> dict[str, tuple[str, ...]]:
    """Irregular plural -> its singulars.

    >>> read_exceptions(b"mice mouse\\naxes ax axis\\n")
    {'mice': ('mouse',), 'axes': ('ax', 'axis')}
    """
    lines = (line.split() for line in content.decode("latin-1").splitlines())
    return {word: tuple(singulars) for word, *singulars in filter(None, lines)}


def _lines(content: bytes, what: str, parse: Callable[[str], T]) -> Iterator[T]:
    for line, text in enumerate(content.decode("latin-1").splitlines(), 1):
        if text.startswith("  "):  # licence text
            continue
        try:
            yield parse(text)
        except (ValueError, IndexError):
            raise InputError(f"{what} line {line} is not in WordNet's format: download WordNet 3.0 again") from None


def _synset(fields: list[str]) -> tuple[int, Synset]:
    """Offset, file, type, number of words (hexadecimal), words with an id each, number of pointers, pointers of 4."""
    after = 4 + 2 * int(fields[3], 16)
    pointers = [fields[start : start + 4] for start in range(after + 1, after + 1 + 4 * int(fields[after]), 4)]
    above = tuple(int(offset) for symbol, offset, _, _ in pointers if symbol in HYPERNYMS)
    return int(fields[0]), Synset(fields[4], above, any(symbol == "@i" for symbol, *_ in pointers))


def _senses(fields: list[str]) -> tuple[str, tuple[int, ...]]:
    """Word, type, number of synsets, number of pointer symbols, these, 2 counts, the synsets."""
    synsets, pointers = int(fields[2]), int(fields[3])
    if len(fields) != 6 + pointers + synsets:
        raise ValueError(fields)
    return fields[0], tuple(int(offset) for offset in fields[6 + pointers :])


def lineage(offset: int, nouns: Mapping[int, Synset], below: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The shortest path from a root to a synset. Of several, the one with the smallest offsets from the root on.

    The path to a node is a prefix of the paths to its descendants, so that all paths form a tree.

    >>> nouns = {1: Synset("thing", ()), 2: Synset("pet", (1,)), 3: Synset("animal", (1,)), 4: Synset("cat", (3, 2))}
    >>> lineage(4, nouns)
    (1, 2, 4)
    """
    if offset not in nouns or offset in below:
        raise InputError(f"WordNet's noun {offset:08} is missing or its own ancestor: download WordNet 3.0 again")
    paths = [lineage(parent, nouns, (*below, offset)) for parent in nouns[offset].above]
    return (*min(paths, key=lambda path: (len(path), path), default=()), offset)
