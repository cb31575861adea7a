"""A small Darwin Core archive, like a download from GBIF: photographs, each identified to some rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from PIL import Image

from dhocl.core.errors import InputError
from dhocl.data import Selection, Source, check
from dhocl.data.dwca import Bundle
from dhocl.data.files import Files
from dhocl.data.lineage import bundled
from dhocl.stream import PlanConfig, plan

ARCHIVE = "occurrences.zip"
EACH = 15  # observations of a species
NEIGHBOURS = 4  # species that come together in the data set's own order, and so are mostly kin
FIRST_DAY = datetime(2025, 3, 1, 6)
TERMS = ("eventDate", "scientificName", "taxonRank", "acceptedNameUsage")
OLD_NAMES = {  # accepted name -> one that is still in use
    "Phoebastria immutabilis": "Diomedea immutabilis",
    "Phoebastria nigripes": "Diomedea nigripes",
    "Hydroprogne caspia": "Sterna caspia",
    "Thalasseus elegans": "Sterna elegans",
    "Cardellina canadensis": "Wilsonia canadensis",
    "Cardellina pusilla": "Wilsonia pusilla",
    "Setophaga citrina": "Wilsonia citrina",
    "Setophaga magnolia": "Dendroica magnolia",
    "Haemorhous purpureus": "Carpodacus purpureus",
    "Cistothorus palustris": "Telmatodytes palustris",
}
META = """<?xml version="1.0" encoding="UTF-8"?>
<archive xmlns="http://rs.tdwg.org/dwc/text/">
  <core rowType="http://rs.tdwg.org/dwc/terms/Occurrence" {how}>
    <files><location>occurrence.txt</location></files>
    <id index="0"/>
    {core}
  </core>
  <extension rowType="http://rs.gbif.org/terms/1.0/Multimedia" {how}>
    <files><location>multimedia.txt</location></files>
    <coreid index="0"/>
    <field index="1" term="http://purl.org/dc/terms/type"/>
    <field index="2" term="http://purl.org/dc/terms/identifier"/>
  </extension>
</archive>
"""
HOW = r'encoding="UTF-8" fieldsTerminatedBy="\t" linesTerminatedBy="\n" fieldsEnclosedBy="" ignoreHeaderLines="1"'


class Occurrence(NamedTuple):
    date: str
    name: str
    rank: str
    image: Path


class Material(NamedTuple):
    """A data set with scientific names."""

    source: Source
    ranks: tuple[str, ...]
    species: list[str]  # by column of the finest level
    old_names: dict[str, str]


def build(folder: Path, data: Path | None, observations: int) -> tuple[str, ...]:
    """Write the archive with photographs of birds, or without `data` of characters. Returns its ranks."""
    if (folder / "media").exists():
        raise InputError(f"{folder} holds an archive already: name a new folder")
    material = _birds(data) if data else _letters()
    source, ranks = material.source, material.ranks
    assert not isinstance(source.train.images, Files)
    rows = _some(source.train.nodes, observations)
    nodes, pictures = source.train.nodes[rows], source.train.images(rows)
    config = PlanConfig(groups=3, granularity=tuple(2.0**n for n in range(len(ranks))))  # fine ranks are common
    table, media = [], []
    (folder / "media").mkdir(parents=True)
    for number, (place, level) in enumerate(plan(nodes, source.tree, config).tolist()):
        lineage = _lineage(material, int(nodes[place]))[: level + 1]
        name = material.old_names.get(lineage[-1], lineage[-1]) if number % 2 else lineage[-1]
        moment = (FIRST_DAY + timedelta(hours=number)).isoformat()
        blanks = [""] * (len(ranks) - len(lineage))
        table.append([str(number), moment, name, ranks[level], lineage[-1], *lineage, *blanks])
        media.append([str(number), "StillImage", file := f"media/{number:05}.jpg"])
        Image.fromarray(pictures[place]).save(folder / file, quality=92)
    np.random.default_rng(0).shuffle(table)  # archives are in no particular order
    terms = (*TERMS, *ranks)
    fields = [f'<field index="{n}" term="http://rs.tdwg.org/dwc/terms/{term}"/>' for n, term in enumerate(terms, 1)]
    with ZipFile(folder / ARCHIVE, "w", ZIP_DEFLATED) as archive:
        archive.writestr("meta.xml", META.format(how=HOW, core="\n    ".join(fields)))
        archive.writestr("occurrence.txt", _tsv(["id", *terms], table))
        archive.writestr("multimedia.txt", _tsv(["coreid", "type", "identifier"], media))
    return ranks


def read(folder: Path) -> list[Occurrence]:
    """The records of the archive, in order of their date."""
    bundle = Bundle(folder / ARCHIVE)
    (extension,) = bundle.extensions
    files = {cells["id"]: folder / cells["identifier"] for _, cells in bundle.read(extension, {"id", "identifier"})}
    rows = (cells for _, cells in bundle.read(bundle.core, {"id", *TERMS}))
    return sorted(Occurrence(c["eventDate"], c["scientificName"], c["taxonRank"], files[c["id"]]) for c in rows)


def _birds(data: Path) -> Material:
    """CUB-200-2011 under its scientific names."""
    source = check("cub200_genus", Selection(data=data, image_size=96))
    return Material(source, source.levels, [row["species"] for row in bundled("cub200", ("species",))], OLD_NAMES)


def _letters() -> Material:
    """Scripts as families, bases as genera, characters as species; some also have the character as a synonym."""
    source = check("glyphs", Selection())
    species = [source.tree.labels[node].name for node in source.tree.nodes(2).tolist()]
    return Material(source, ("family", "genus", "species"), species, {name: name.split()[0] for name in species[::3]})


def _some(nodes: np.ndarray, observations: int) -> np.ndarray:
    """Rows of that many images, of a few species, in groups of neighbours from the whole data set."""
    species = np.unique(nodes)
    wanted = min(len(species), max(NEIGHBOURS, observations // EACH))
    starts = np.linspace(0, len(species) - NEIGHBOURS, max(1, wanted // NEIGHBOURS)).astype(int)
    chosen = {int(species[start + n]) for start in starts for n in range(NEIGHBOURS)}
    by_species = [np.flatnonzero(nodes == node) for node in sorted(chosen)]
    rows = [row for turn in _turns(by_species) for row in turn]
    return np.array(rows[:observations])


def _turns(lists: Sequence[np.ndarray]) -> Iterator[list[int]]:
    """The first of each list, then the second of each, ..."""
    for turn in range(max(map(len, lists))):
        yield [int(rows[turn]) for rows in lists if turn < len(rows)]


def _lineage(material: Material, leaf: int) -> list[str]:
    """Names from the coarsest rank to the species."""
    tree = material.source.tree
    *above, _ = (tree.labels[node].name for node in reversed(tree.lineage(leaf)))
    return [*above, material.species[tree.column(leaf)]]


def _tsv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in [header, *rows])
