"""WordNet's nouns and what lies above each, from the published `data.noun`, `index.noun` and `noun.exc`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from dhocl.errors import InputError

T = TypeVar("T")

HYPERNYMS = ("@", "@i")  # a kind of, an instance of


class Synset(NamedTuple):
    word: str  # its first
    above: tuple[int, ...]
    instance: bool = False  # a single thing, such as a person or a ship, and no kind


def read_nouns(content: bytes, what: str) -> dict[int, Synset]:
    """Offset -> synset. The offsets are read, not counted: copies with other line ends exist."""
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
        if text.startswith("  "):  # the licence
            continue
        try:
            yield parse(text)
        except (ValueError, IndexError):
            raise InputError(f"{what} line {line} is not of WordNet's form: download WordNet 3.0 again") from None


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
    """From a root down to a synset, by the shortest way; of several as short, by the smallest offsets from the root on.

    The way to a node is part of the way to what lies below it, so that all ways together are a tree.

    >>> nouns = {1: Synset("thing", ()), 2: Synset("pet", (1,)), 3: Synset("animal", (1,)), 4: Synset("cat", (3, 2))}
    >>> lineage(4, nouns)
    (1, 2, 4)
    """
    if offset not in nouns or offset in below:
        raise InputError(f"WordNet's noun {offset:08} is missing or lies above itself: download WordNet 3.0 again")
    ways = [lineage(parent, nouns, (*below, offset)) for parent in nouns[offset].above]
    return (*min(ways, key=lambda way: (len(way), way), default=()), offset)
