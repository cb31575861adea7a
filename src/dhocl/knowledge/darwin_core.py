"""A checklist or a table of occurrences in Darwin Core as a knowledge source: what lies above what in biology."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from dhocl.data.dwca import Bundle
from dhocl.data.taxa import Taxa
from dhocl.errors import InputError
from dhocl.knowledge.source import Oracle, Statement, Synonym
from dhocl.taxonomy import Label


class DarwinCore:
    """Links between ranks and accepted names, from an archive (zip or folder) or a table with a header line.

    `levels` names the ranks that the classes have, coarsest first. A name is matched with or without its author. Other
    names of a class are answered as synonyms of the accepted one, whichever comes first. A name that a rank has twice
    is ambiguous and told nothing about, unless its parent is added as in 'Morus (Sulidae)'.
    """

    def __init__(self, path: str | Path, levels: Sequence[str]) -> None:
        taxa = Taxa([level.lower() for level in levels])
        bundle = Bundle(Path(path))
        for _, cells in bundle.read(bundle.core, taxa.terms(bundle.core.kind)):
            taxa.add(cells)
        self._tree, self._synonyms = taxa.tree()
        if not len(self._tree):
            raise InputError(f"{path} names nothing of the ranks {', '.join(levels)}: give ranks that it has")
        self._oracle = Oracle(self._tree)

    def accepted(self, label: Label) -> Label:
        """The accepted name of a class; its own if it is not listed as a synonym."""
        node = self._synonyms.get(label)
        return label if node is None else self._tree.labels[node]

    def query(self, label: Label, known: Collection[Label]) -> list[Statement]:
        own = self.accepted(label)
        names: dict[Label, list[Label]] = {}  # accepted name -> those in use
        for other in {**dict.fromkeys(known), label: None}:
            names.setdefault(self.accepted(other), []).append(other)
        synonyms = [Synonym(name, own) for name in names[own] if name != own]
        links = [(names[child][0], names[parent][0]) for child, parent in self._oracle.query(own, names)]
        return [*synonyms, *links]
