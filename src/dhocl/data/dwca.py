"""Darwin Core files as rows of terms: an archive (zip or folder) with meta.xml, or one table with a header line.

Archives come from strangers. Nothing is unpacked to disk, no name may point outside, sizes are bounded, and XML with a
document type declaration, where entities could hide, is not parsed.
"""

from __future__ import annotations

import codecs
import csv
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import IO, Literal, NamedTuple
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile

from dhocl.data.archive import leaves
from dhocl.errors import InputError

META = "meta.xml"
TABLES = (".csv", ".tsv", ".txt")
LARGEST = 16 * 2**30  # bytes of an unpacked file
LARGEST_META = 2**20
FOLD = 200  # times that a file may grow when it is unpacked, if it is large then
LARGE = 10 * 2**20
LONGEST = 2**20  # characters of a line
DAMAGE = (BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError)  # zipfile raises all of these
ESCAPES = {r"\t": "\t", r"\n": "\n", r"\r": "\r"}


class Record(NamedTuple):
    place: str  # "FILE line N", for complaints
    cells: dict[str, str]  # by term


@dataclass(frozen=True)
class Layout:
    """How a table lies in its files."""

    kind: str  # what a row is, such as Taxon or Occurrence; empty if nothing tells
    files: tuple[str, ...]
    columns: dict[str, int]  # term -> place in the row; `id` is what other tables refer to
    defaults: dict[str, str]
    delimiter: str = ","
    quote: str = '"'  # empty: none
    encoding: str = "utf-8"
    skip: int = 0  # header lines


class Bundle:
    """The tables of an archive; of a folder that holds no meta.xml, the one archive or table in it."""

    def __init__(self, path: Path) -> None:
        if path.is_dir() and not (path / META).is_file():
            path = _only([file for file in path.iterdir() if file.suffix.lower() in (".zip", *TABLES)], str(path))
        self._path = path
        zipped = path.suffix.lower() == ".zip"
        if not path.exists():
            raise InputError(f"{path} is missing: give a Darwin Core archive, or a table with a header line")
        names = self._members() if zipped else [file.name for file in path.iterdir()] if path.is_dir() else [path.name]
        self.core: Layout
        self.extensions: list[Layout] = []
        if META in names:
            with self._open(META) as file:
                self.core, *self.extensions = _layouts(file.read(LARGEST_META + 1), f"{META} in {path}")
        else:
            tables = [Path(name) for name in names if name.lower().endswith(TABLES)]
            self.core = self._headed(str(_only(tables, str(path)) if zipped else path.name))

    def read(self, layout: Layout, terms: Collection[str]) -> Iterator[Record]:
        """The rows of a table, with those of the terms that it has."""
        columns = {term: place for term, place in layout.columns.items() if term in terms}
        defaults = {term: value for term, value in layout.defaults.items() if term in terms}
        for name in layout.files:
            for line, row in self._rows(name, layout):
                cells = {term: row[place].strip() for term, place in columns.items() if place < len(row)}
                filled = {term: value for term, value in cells.items() if value}
                yield Record(f"{name} line {line}", defaults | filled)

    def _rows(self, name: str, layout: Layout) -> Iterator[tuple[int, list[str]]]:
        what = self._what(name)
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if layout.quote else csv.QUOTE_NONE
        with self._open(name) as file:
            text = TextIOWrapper(file, "utf-8-sig" if layout.encoding == "utf-8" else layout.encoding, newline="")
            lines = _lines(text, what)
            try:
                for _ in zip(range(layout.skip), lines, strict=False):
                    pass
                reader = csv.reader(lines, delimiter=layout.delimiter, quotechar=layout.quote or None, quoting=quoting)
                for row in reader:
                    if any(row):
                        yield layout.skip + reader.line_num, row
            except UnicodeError:
                raise InputError(f"{what} is not {layout.encoding} text: save it with that encoding") from None
            except csv.Error as problem:
                raise InputError(f"{what} can not be read: {problem}") from None

    def _headed(self, name: str) -> Layout:
        """A table whose first line names the terms."""
        with self._open(name) as file:
            first = file.readline(LONGEST).decode("utf-8-sig", "replace")
        delimiter = next((mark for mark in ("\t", ",", ";") if mark in first), ",")
        quote = "" if delimiter == "\t" else '"'  # between tabs quotes mean nothing
        header = next(csv.reader([first], delimiter=delimiter, quotechar='"'), [])
        columns = {_term(cell.strip()): place for place, cell in enumerate(header)}
        return Layout("", (name,), columns, {}, delimiter, quote, skip=1)

    def _members(self) -> list[str]:
        try:
            with ZipFile(self._path) as archive:
                members = archive.infolist()
        except DAMAGE as problem:
            raise InputError(f"{self._path} is damaged or no zip archive ({problem}): download it again") from None
        for member in members:
            name, size = member.filename, member.file_size
            if leaves(name.replace("\\", "/")):
                raise InputError(f"{self._path} is refused: its member {name!r} points outside of it")
            if size > LARGEST or (size > LARGE and size > FOLD * member.compress_size):
                raise InputError(f"{self._path} is refused: its member {name!r} would unpack to {size:,} bytes")
        return [member.filename for member in members]

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        what = self._what(name)
        if leaves(name):
            raise InputError(f"{what} lies outside of the archive: download it again")
        try:
            if self._path.suffix.lower() == ".zip":
                with ZipFile(self._path) as archive, archive.open(name) as file:
                    yield file
            else:
                with (self._path / name if self._path.is_dir() else self._path).open("rb") as file:
                    yield file
        except KeyError:
            raise InputError(f"{what} is missing: download the archive again") from None
        except FileNotFoundError:
            raise InputError(f"{what} is missing: extract the archive again") from None
        except DAMAGE as problem:
            raise InputError(f"{what} is damaged ({problem}): download it again") from None

    def _what(self, name: str) -> str:
        return str(self._path) if self._path.name == name else f"{name} in {self._path}"


def _layouts(content: bytes, what: str) -> list[Layout]:
    """The core, then the extensions."""
    if len(content) > LARGEST_META:
        raise InputError(f"{what} is refused: it is larger than {LARGEST_META:,} bytes")
    try:
        text = content.decode("utf-8-sig")
        if "<!DOCTYPE" in text:  # without one there are no entities of its own
            raise InputError(f"{what} is refused: it holds a document type declaration")
        tables = [element for element in ElementTree.fromstring(text) if _local(element) in ("core", "extension")]
        layouts = [_layout(table) for table in sorted(tables, key=_local)]
    except (UnicodeDecodeError, ElementTree.ParseError, LookupError, ValueError) as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError(f"{what} does not describe an archive ({problem}): download it again") from None
    if not tables or [_local(table) for table in tables].count("core") != 1:
        raise InputError(f"{what} does not describe an archive (it needs one core): download it again")
    return layouts


def _layout(table: ElementTree.Element) -> Layout:
    columns, defaults = {}, {}
    for field in table:
        if _local(field) in ("id", "coreid"):
            columns["id"] = _count(field.attrib["index"])
        elif _local(field) == "field":
            term = _term(field.attrib["term"])
            if "index" in field.attrib:
                columns[term] = _count(field.attrib["index"])
            if field.get("default"):
                defaults[term] = field.attrib["default"]
    files = tuple((place.text or "").strip() for place in table.iter() if _local(place) == "location")
    if not files:
        raise ValueError("a table without files")
    delimiter, quote = (
        table.get(name, usual) for name, usual in (("fieldsTerminatedBy", ","), ("fieldsEnclosedBy", '"'))
    )
    delimiter = ESCAPES.get(delimiter, delimiter)
    if len(delimiter) != 1 or len(quote) > 1 or delimiter in (quote, "\r", "\n"):
        raise ValueError(f"fields between {delimiter!r} and enclosed by {quote!r}")
    encoding = codecs.lookup(table.get("encoding") or "utf-8").name
    TextIOWrapper(BytesIO(), encoding)  # fails for codecs that are not for text
    skip = _count(table.get("ignoreHeaderLines") or "0")
    return Layout(_term(table.get("rowType", "")), files, columns, defaults, delimiter, quote, encoding, skip)


def _lines(text: TextIOWrapper, what: str) -> Iterator[str]:
    while line := text.readline(LONGEST):
        if len(line) == LONGEST:
            raise InputError(f"{what} has a line of more than {LONGEST:,} characters: it is no table")
        yield line


def _only(files: list[Path], where: str) -> Path:
    if len(files) != 1:
        found = f"{len(files)} tables or archives" if files else "no table or archive"
        raise InputError(f"{where} holds {found}: put one Darwin Core archive there, or one table with a header line")
    return files[0]


def _term(name: str) -> str:
    """The last part of a term's address.

    >>> _term("http://rs.tdwg.org/dwc/terms/taxonID"), _term("dwc:taxonID"), _term("taxonID")
    ('taxonID', 'taxonID', 'taxonID')
    """
    return name.rstrip("/#").replace("#", "/").replace(":", "/").rpartition("/")[2]


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no count")
    return int(text)
