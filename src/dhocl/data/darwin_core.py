"""Darwin Core occurrences, such as a download from GBIF, as a stream of photographs in order of their date.

Each is labelled with the accepted name at the rank it was identified to. Occurrences without a date, a name or an image
file are skipped, and a warning counts them.
"""

from __future__ import annotations

import logging
import mimetypes
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from os.path import isfile  # returns False for names that are too long, where pathlib raises
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from dhocl.core.errors import InputError
from dhocl.data.archive import escapes
from dhocl.data.dataset import Selection, Source, Table
from dhocl.data.dwca import Bundle, Record
from dhocl.data.files import Files
from dhocl.data.lineage import disambiguate, grow
from dhocl.data.taxa import Taxa

RANKS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")
MEDIA = ("Multimedia", "Image")  # extensions that name files
SIZE = 224


class Photograph(NamedTuple):
    moment: float
    place: str  # "FILE line N", for error messages
    name: str  # path below the folder
    lineage: tuple[str, ...]


def read(selection: Selection) -> Source:
    if selection.data is None or not selection.data.is_dir():
        raise InputError(
            f"`data` must be a folder with a Darwin Core archive of occurrences and the images; got {selection.data}"
        )
    data, skipped = selection.data, Counter[str]()
    found = sorted(_photographs(data, skipped), key=lambda photograph: photograph.moment)  # stable
    if counts := ", ".join(f"{what} ({count})" for what, count in skipped.items() if count):
        logging.getLogger(__name__).warning("skipped in %s: %s", data, counts)
    if not found:
        raise InputError(
            f"no occurrence in {data} has a date, a name and an image file: put each image below it at the path of its "
            "identifier, that of a URL in a folder named like the host (wget -x)"
        )
    used = [rank for rank in range(len(RANKS)) if any(photograph.lineage[rank] for photograph in found)]
    tree, nodes = grow(disambiguate([photograph.lineage[rank] for rank in used] for photograph in found))
    files = Files(data, [p.name for p in found], selection.image_size or SIZE, places=[p.place for p in found])
    nothing = Table(np.empty(0, dtype=np.int64), files.pick(np.empty(0, dtype=np.int64)))
    levels = tuple(RANKS[rank] for rank in used)
    return Source("darwin_core", levels, tree, Table(nodes, files), nothing, flip=True, given=True)


def _photographs(data: Path, skipped: Counter[str]) -> Iterator[Photograph]:
    bundle, taxa = Bundle(data), Taxa(RANKS)
    if bundle.core.kind not in ("", "Occurrence"):
        raise InputError(f"{data} is an archive of rows of type {bundle.core.kind}: expected Occurrence")
    shown = _extension(bundle)
    terms = taxa.terms(bundle.core.kind) | {"id", "eventDate", "associatedMedia"}
    for record in bundle.read(bundle.core, terms):
        cells = record.cells
        names = [*cells.get("associatedMedia", "").split("|"), *shown.get(cells.pop("id", ""), [])]
        files = list(dict.fromkeys(_file(name.strip(), record) for name in names if name.strip()))
        if not files:
            skipped["occurrences without an image"] += 1
        elif (moment := _moment(cells.get("eventDate", ""))) is None:
            skipped["without a date"] += 1
        elif not any(lineage := taxa.lineage(taxa.add(cells))):
            skipped["without a name"] += 1
        else:
            there = [file for file in files if isfile(data / file)]
            skipped["missing images"] += len(files) - len(there)
            for file in there:
                yield Photograph(moment, record.place, file, lineage)


def _extension(bundle: Bundle) -> Mapping[str, list[str]]:
    """Id of an occurrence -> the images that extension tables list for it."""
    shown: dict[str, list[str]] = {}
    for layout in bundle.extensions:
        if layout.kind in MEDIA:
            for _, cells in bundle.read(layout, {"id", "identifier", "accessURI", "type", "format"}):
                name = cells.get("accessURI") or cells.get("identifier", "")
                kind = cells.get("format") or mimetypes.guess_type(name)[0] or "image"
                if cells.get("type", "StillImage") in ("StillImage", "Image") and kind.startswith("image"):
                    shown.setdefault(cells.get("id", ""), []).append(name)
    return shown


def _file(name: str, record: Record) -> str:
    """The path of an image below the folder.

    >>> _file("https://example.org/photos/7/large.jpg", Record("", {})), _file("photos/7.jpg", Record("", {}))
    ('example.org/photos/7/large.jpg', 'photos/7.jpg')
    """
    parts = urlsplit(name)
    path = f"{parts.netloc}{parts.path}" + (f"?{parts.query}" if parts.query else "") if parts.netloc else name
    if escapes(path.replace("\\", "/")):
        raise InputError(f"{record.place}: the image {name!r} is not inside the folder; give it relative to that")
    return path


def _moment(date: str) -> float | None:
    """Timestamp of a date or of the start of an interval; a month or a year starts on its first day.

    >>> _moment("2019-05-31/2019-06-02") == _moment("2019-05-31"), _moment("2019-05") == _moment("2019-05-01")
    (True, True)
    >>> _moment("last summer")
    """
    start = date.partition("/")[0].strip()
    padded = start + {4: "-01-01", 7: "-01"}.get(len(start), "")
    try:
        moment = datetime.fromisoformat(padded)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
