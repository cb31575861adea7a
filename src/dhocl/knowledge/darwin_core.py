"""A Darwin Core checklist or table of occurrences as a knowledge source."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label
from dhocl.data.dwca import Bundle
from dhocl.data.taxa import Taxa
from dhocl.knowledge.source import Oracle, Statement, Synonym


class DarwinCore:
    """Links and synonyms from a Darwin Core file.

    Args:
        path: an archive (zip or folder), or a table with a header line.
        levels: ranks of the classes, coarsest first.

    A name is matched with or without its author. Other names of a class are returned as synonyms of its accepted name.
    A name that occurs twice at a rank is ambiguous and gets no answer, unless its parent is added as in
    'Morus (Sulidae)'.
    """

    def __init__(self, path: str | Path, levels: Sequence[str]) -> None:
        taxa = Taxa([level.lower() for level in levels])
        bundle = Bundle(Path(path))
        for _, cells in bundle.read(bundle.core, taxa.terms(bundle.core.kind)):
            taxa.add(cells)
        self._tree, self._synonyms = taxa.tree()
        if not len(self._tree):
            raise InputError(f"{path} has no taxon of the ranks {', '.join(levels)}: use ranks that it has")
        self._oracle = Oracle(self._tree)

    def accepted(self, label: Label) -> Label:
        """The accepted name of a class; its own name if it is not a synonym."""
        node = self._synonyms.get(label)
        return label if node is None else self._tree.labels[node]

    def query(self, label: Label, known: Collection[Label]) -> list[Statement]:
        own = self.accepted(label)
        names: dict[Label, list[Label]] = {}  # accepted name -> known names
        for other in {**dict.fromkeys(known), label: None}:
            names.setdefault(self.accepted(other), []).append(other)
        synonyms = [Synonym(name, own) for name in names[own] if name != own]
        links = [(names[child][0], names[parent][0]) for child, parent in self._oracle.query(own, names)]
        return [*synonyms, *links]
