"""Knowledge sources by a short text, as a command line gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dhocl.data.treefile import read_tree
from dhocl.errors import InputError
from dhocl.knowledge.background import Background
from dhocl.knowledge.darwin_core import DarwinCore
from dhocl.knowledge.llm import Llm
from dhocl.knowledge.source import Chain, KnowledgeSource, Oracle
from dhocl.knowledge.wordnet import WordNet
from dhocl.taxonomy import Taxonomy

OPENED: dict[str, Callable[[str, Sequence[str]], KnowledgeSource]] = {
    "tree": lambda place, levels: Oracle(open_tree(place, levels)),
    "wordnet": lambda place, _: WordNet(place),
    "darwin_core": DarwinCore,
}


def open_source(*texts: str, levels: Sequence[str]) -> Chain:
    """Of `tree:FILE`, `wordnet:DIR`, `darwin_core:PATH` and `llm`, in the order in which they are to be asked.

    `levels` names the ranks of the classes, coarsest first. A language model takes its settings from the environment
    and is asked in the background, so close the chain when nothing is learned any more.
    """
    return Chain(*[_open(text, levels) for text in texts])


def open_tree(file: str | Path, levels: Sequence[str]) -> Taxonomy:
    """A `tree.tsv` of these levels."""
    tree, ranks = read_tree(Path(file))
    if tuple(ranks) != tuple(levels):
        raise InputError(f"{file} has the levels {', '.join(ranks)}, but {', '.join(levels)} were asked for")
    return tree


def _open(text: str, levels: Sequence[str]) -> KnowledgeSource:
    kind, _, place = text.partition(":")
    if text == "llm":
        return Background(Llm(levels))
    if kind in OPENED and place:
        return OPENED[kind](place, levels)
    raise InputError(f"there is no knowledge source {text!r}: give tree:FILE, wordnet:DIR, darwin_core:PATH or llm")
