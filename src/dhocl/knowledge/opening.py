"""Open knowledge sources by a short text, for the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Taxonomy
from dhocl.data.treefile import read_tree
from dhocl.knowledge.darwin_core import DarwinCore
from dhocl.knowledge.llm import Llm
from dhocl.knowledge.source import Chain, KnowledgeSource, Oracle
from dhocl.knowledge.wordnet import WordNet

OPENED: dict[str, Callable[[str, Sequence[str]], KnowledgeSource]] = {
    "tree": lambda place, levels: Oracle(open_tree(place, levels)),
    "wordnet": lambda place, _: WordNet(place),
    "darwin_core": DarwinCore,
    "llm": lambda _, levels: Llm(levels),
}


def open_source(*texts: str, levels: Sequence[str]) -> Chain:
    """A chain of sources.

    Args:
        texts: `tree:FILE`, `wordnet:DIR`, `darwin_core:PATH` or `llm` (see `Llm` for its environment variables). The
            first source with an answer is used.
        levels: names of the levels, coarsest first.
    """
    return Chain(*[_open(text, levels) for text in texts])


def open_tree(file: str | Path, levels: Sequence[str]) -> Taxonomy:
    """Read a `tree.tsv`. InputError if it has other levels."""
    tree, ranks = read_tree(Path(file))
    if tuple(ranks) != tuple(levels):
        raise InputError(f"{file} has the levels {', '.join(ranks)}: expected {', '.join(levels)}")
    return tree


def _open(text: str, levels: Sequence[str]) -> KnowledgeSource:
    kind, _, place = text.partition(":")
    if kind in OPENED and bool(place) == (kind != "llm"):
        return OPENED[kind](place, levels)
    raise InputError(f"there is no knowledge source {text!r}: give tree:FILE, wordnet:DIR, darwin_core:PATH or llm")
