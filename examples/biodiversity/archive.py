"""A small Darwin Core archive, such as GBIF sends: occurrences named at the rank their observer dared, and photographs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from PIL import Image

from dhocl.data import Selection, Source, check
from dhocl.data.dwca import Bundle
from dhocl.data.files import Files
from dhocl.data.lineage import carried
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


def build(folder: Path, data: Path | None, observations: int) -> tuple[str, ...]:
    """Write the archive and its photographs of birds, or without `data` of letters; the ranks that it has."""
    if data:
        source, ranks = check("cub200_genus", Selection(data=data, image_size=96)), ("order", "family", "genus", "species")
        latin = [row["species"] for row in carried("cub200", ("species",))]
        old_names = OLD_NAMES
    else:
        source, ranks = check("glyphs", Selection()), ("family", "genus", "species")  # script, base, character
        latin = [source.tree.labels[node].name for node in source.tree.nodes(2).tolist()]
        old_names = {name: name.split()[0] for name in latin[::3]}  # the character alone, without what Unicode calls it
    rows = _some(source.train.nodes, observations)
    order = plan(source.train.nodes[rows], source.tree, PlanConfig(groups=3, granularity=tuple(2.0**n for n in range(len(ranks)))))
    assert not isinstance(source.train.images, Files)
    pictures = source.train.images(rows)
    (folder / "media").mkdir(parents=True)
    table, media = [], []
    for number, (place, level) in enumerate(order.tolist()):
        names = _lineage(source, int(source.train.nodes[rows[place]]), latin)[: level + 1]
        name, file = names[-1], f"media/{number:05}.jpg"
        if level == len(ranks) - 1 and number % 2:
            name = old_names.get(name, name)
        Image.fromarray(pictures[place]).save(folder / file, quality=92)
        moment = (FIRST_DAY + timedelta(hours=number)).isoformat()
        table.append([str(number), moment, name, ranks[level], names[-1], *names, *[""] * (len(ranks) - 1 - level)])
        media.append([str(number), "StillImage", file])
    np.random.default_rng(0).shuffle(table)  # archives are in no particular order
    fields = [f'<field index="{n}" term="http://rs.tdwg.org/dwc/terms/{term}"/>' for n, term in enumerate((*TERMS, *ranks), 1)]
    with ZipFile(folder / ARCHIVE, "w", ZIP_DEFLATED) as archive:
        archive.writestr("meta.xml", META.format(how=HOW, core="\n    ".join(fields)))
        archive.writestr("occurrence.txt", _tsv(["id", *TERMS, *ranks], table))
        archive.writestr("multimedia.txt", _tsv(["coreid", "type", "identifier"], media))
    return ranks


def read(folder: Path) -> list[Occurrence]:
    """What the archive holds, in the order in which it was seen."""
    bundle = Bundle(folder / ARCHIVE)
    (extension,) = bundle.extensions
    files = {cells["id"]: folder / cells["identifier"] for _, cells in bundle.read(extension, {"id", "identifier"})}
    rows = (cells for _, cells in bundle.read(bundle.core, {"id", *TERMS}))
    return sorted(Occurrence(c["eventDate"], c["scientificName"], c["taxonRank"], files[c["id"]]) for c in rows)


def _some(nodes: np.ndarray, observations: int) -> np.ndarray:
    """Rows of so many images, of a few species in groups of neighbours from all over the data set."""
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


def _lineage(source: Source, leaf: int, latin: Sequence[str]) -> list[str]:
    """Names from the coarsest rank to the species."""
    *above, _ = (source.tree.labels[node].name for node in reversed(source.tree.lineage(leaf)))
    return [*above, latin[source.tree.column(leaf)]]


def _tsv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in [header, *rows])
