"""Taxa from the rows of a checklist or of occurrences: lineages, accepted names and synonyms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.data.lineage import disambiguate, grow

BELOW_SPECIES = {"subspecies", "variety", "varietas", "subvariety", "form", "forma", "subform", "infraspecific_name"}
AUTHORS = {"and", "auct.", "da", "de", "del", "den", "der", "di", "et", "ex", "in", "sensu", "van", "von", "zu"}
TERMS = (
    "taxonID",
    "scientificName",
    "canonicalName",  # of GBIF
    "taxonRank",
    "genus",
    "specificEpithet",
    "acceptedNameUsageID",
    "acceptedNameUsage",
    "acceptedScientificName",  # of GBIF
    "parentNameUsageID",
)
DEPTH = 100  # links followed from a name to its accepted one, or from a taxon to its ancestors, in case of a cycle


class Taxon(NamedTuple):
    id: str
    name: str  # without its author
    written: str  # as in the row
    rank: str
    parent: str  # id
    accepted: str  # id
    accepted_name: str
    columns: tuple[str, ...]  # name at each level, from the columns of the row


class Taxa:
    """Unique taxa by id and by name. `levels` are ranks in lower case, coarsest first."""

    def __init__(self, levels: Sequence[str]) -> None:
        self.levels = tuple(levels)
        self._taxa: dict[Taxon, None] = {}
        self._by_id: dict[str, Taxon] = {}
        self._by_name: dict[tuple[str, str], Taxon] = {}

    def terms(self, kind: str) -> set[str]:
        """The terms that `add` reads from a row of this kind. In a checklist the id of a row is that of the taxon."""
        return {*TERMS, *self.levels} | ({"id"} if kind == "Taxon" else set())

    def add(self, cells: Mapping[str, str]) -> Taxon:
        rank, written = cells.get("taxonRank", "").lower(), cells.get("scientificName", "")
        name = cells.get("canonicalName") or without_author(written, rank)
        columns = [cells.get(level, "") for level in self.levels]
        if "species" in self.levels and not columns[self.levels.index("species")]:
            columns[self.levels.index("species")] = _species(cells, name, rank)
        accepted = without_author(cells.get("acceptedNameUsage") or cells.get("acceptedScientificName", ""), rank)
        taxon = Taxon(
            cells.get("taxonID") or cells.get("id", ""),
            name,
            written,
            rank,
            cells.get("parentNameUsageID", ""),
            cells.get("acceptedNameUsageID", ""),
            accepted,
            tuple(columns),
        )
        self._taxa.setdefault(taxon)
        if taxon.id:
            self._by_id.setdefault(taxon.id, taxon)
        self._by_name.setdefault((name, rank), taxon)
        return taxon

    def lineage(self, taxon: Taxon) -> tuple[str, ...]:
        """The accepted names of a taxon and its ancestors, by level; empty where unknown.

        Columns of the row take precedence over parents by id. The lineage of a taxon between two levels ends at the
        coarser one.
        """
        taxon = self._accepted(taxon)
        names, end = list(taxon.columns), len(self.levels)
        if taxon.rank in self.levels:
            own = self.levels.index(taxon.rank)
            names[own], end = names[own] or taxon.name, own + 1
        above: Taxon | None = taxon
        for _ in range(DEPTH):
            if above is None or (above := self._by_id.get(above.parent)) is None:
                break
            if above.rank in self.levels and not names[self.levels.index(above.rank)]:
                names[self.levels.index(above.rank)] = above.name
        return tuple(name if level < end else "" for level, name in enumerate(names))

    def tree(self) -> tuple[Taxonomy, dict[Label, int]]:
        """The tree of all accepted names, and the nodes of other names that are unambiguous.

        A synonym without a rank gets that of its accepted name, as in many checklists.
        """
        named = [(taxon, names) for taxon in self._taxa if any(names := self.lineage(taxon))]
        tree, nodes = grow(disambiguate(names for _, names in named))
        others: dict[Label, set[int]] = defaultdict(set)
        for (taxon, _), node in zip(named, nodes.tolist(), strict=True):
            level = tree.labels[node].level
            if (taxon.rank or self._accepted(taxon).rank) == self.levels[level]:
                for label in (Label(taxon.name, level), Label(taxon.written, level)):
                    if label not in tree:
                        others[label].add(node)
        return tree, {label: found.pop() for label, found in others.items() if len(found) == 1}

    def _accepted(self, taxon: Taxon) -> Taxon:
        for _ in range(DEPTH):
            found = self._by_id.get(taxon.accepted) if taxon.accepted != taxon.id else None
            if found is None and taxon.accepted_name not in ("", taxon.name):
                found = self._by_name.get((taxon.accepted_name, taxon.rank))
                if found is None:
                    return taxon._replace(name=taxon.accepted_name)
            if found is None or found is taxon:
                break
            taxon = found
        return taxon


def _species(cells: Mapping[str, str], name: str, rank: str) -> str:
    """The species of a row without that column: from genus and epithet, or from the name of a subspecies."""
    if not rank and cells.get("genus") and cells.get("specificEpithet"):
        return f"{cells['genus']} {cells['specificEpithet']}"
    return " ".join(name.split()[:2]) if rank in BELOW_SPECIES else ""


def without_author(name: str, rank: str) -> str:
    """A scientific name without its author, which begins with a capital letter, a bracket or a word such as "de".

    >>> without_author("Erithacus rubecula (Linnaeus, 1758)", "species"), without_author("Paridae Vigors", "family")
    ('Erithacus rubecula', 'Paridae')
    >>> without_author("Parus (Cyanistes) caeruleus L.", "species"), without_author("Influenza A virus", "species")
    ('Parus caeruleus', 'Influenza A virus')
    """
    first, *rest = name.split() or [""]
    if len(rest) > 1 and rest[0].startswith("(") and rest[0].endswith(")") and not _begins_author(rest[1]):
        rest = rest[1:]  # a subgenus
    end = next((place for place, word in enumerate(rest) if _begins_author(word)), len(rest))
    if rank == "species" and end == 0:
        return name
    return " ".join([first, *rest[:end]])


def _begins_author(word: str) -> bool:
    return word[0].isupper() or word[0].isdigit() or word[0] in "([&" or word in AUTHORS or word.startswith("d'")
