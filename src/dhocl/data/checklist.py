"""Lists of names that may occur, such as the species of a region."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label
from dhocl.data.dwca import Bundle
from dhocl.data.folder import find_level
from dhocl.data.tabular import DELIMITERS
from dhocl.data.taxa import BELOW_SPECIES, Taxa

HEADERS = {"name", "names"}  # of a column of plain names


class Listed(NamedTuple):
    """A name of a list."""

    name: str
    level: int | None  # None: it may be of any level
    above: tuple[Label, ...] = ()  # its ancestors in the list, finest first


def read_checklist(file: Path, levels: Sequence[str]) -> list[Listed]:
    """The names of a file.

    Args:
        file: a Darwin Core archive or table, a table with a column for each level (genus, species, ...), or text with
            a name per line, as for `parse_name`.
        levels: names of the levels, coarsest first.
    """
    if file.is_dir() or file.suffix.lower() == ".zip" or _has_columns(file, levels):
        found = list(_rows(file, levels))
    else:
        found = [parse_name(line, levels) for line in _lines(file) if line.lower() not in HEADERS]
    if not found:
        raise InputError(f"`among` {file} has no names: write one per line, or give a Darwin Core checklist")
    return found


def parse_name(text: str, levels: Sequence[str]) -> Listed:
    """A name, with its level before it where that is needed.

    >>> parse_name("Corvidae", ("family", "genus")), parse_name("Family: Corvidae", ("family", "genus"))
    (Listed(name='Corvidae', level=None, above=()), Listed(name='Corvidae', level=0, above=()))
    """
    before, colon, name = text.partition(":")
    level = find_level(before.strip(), levels) if colon else None
    return Listed(text.strip(), None) if level is None else Listed(name.strip(), levels.index(level))


def _lines(file: Path) -> Iterator[str]:
    """Lines that are neither empty nor comments."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            yield from (line.strip().strip('"') for line in lines if line.strip() and not line.startswith("#"))
    except FileNotFoundError:
        raise InputError(f"`among` {file}: no such file") from None
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8 text: save it with that encoding") from None
    except OSError as problem:
        raise InputError(f"{file} can not be read: {problem.strerror}") from None


def _has_columns(file: Path, levels: Sequence[str]) -> bool:
    first = next(_lines(file), "")
    for mark in DELIMITERS:
        first = first.replace(mark, "\n")
    terms = {"scientificname", "canonicalname", *(level.lower() for level in levels)}
    return any(cell.strip(' "').rpartition("/")[2].lower() in terms for cell in first.split("\n"))


def _rows(file: Path, levels: Sequence[str]) -> Iterator[Listed]:
    taxa, bundle = Taxa([level.lower() for level in levels]), Bundle(file)
    rows = [taxa.add(cells) for _, cells in bundle.read(bundle.core, taxa.terms(bundle.core.kind))]
    for taxon in dict.fromkeys(rows):
        names = [Label(name, level) for level, name in enumerate(taxa.lineage(taxon)) if name]
        between = taxon.rank and taxon.rank not in (*taxa.levels, *BELOW_SPECIES)  # such as a subfamily
        if taxon.name and (between or not names):
            yield Listed(taxon.name, None, tuple(reversed(names)))
        elif names:
            *above, own = names
            yield Listed(own.name, own.level, tuple(reversed(above)))
