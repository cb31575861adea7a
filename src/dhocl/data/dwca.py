"""Read Darwin Core files: an archive (zip or folder) with meta.xml, or one table with a header line.

Archives are untrusted. Nothing is extracted to disk, names that point outside are refused, sizes are bounded, and XML
with a document type declaration is not parsed because of entity expansion.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path, PurePosixPath
from typing import IO, Literal, NamedTuple
from zipfile import BadZipFile, ZipFile

from dhocl.core.errors import InputError
from dhocl.data.archive import escapes
from dhocl.data.dwca_meta import LARGEST as LARGEST_META
from dhocl.data.dwca_meta import Layout, read_layouts, short

META = "meta.xml"
TABLES = (".csv", ".tsv", ".tab", ".txt")
LARGEST = 16 * 2**30  # bytes of a decompressed file
FOLD = 200  # largest compression ratio of a file that decompresses to more than LARGE
LARGE = 10 * 2**20  # bytes
LONGEST = 2**20  # characters of a line
DAMAGE = (BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError)  # zipfile raises all of these


class Record(NamedTuple):
    place: str  # "FILE line N", for error messages
    cells: dict[str, str]  # by term


class Bundle:
    """The tables of an archive. A folder without meta.xml must hold one archive or table.

    The files of a zip archive may be in a folder inside it.
    """

    def __init__(self, path: Path) -> None:
        if path.is_dir() and not (path / META).is_file():
            path = _only([file for file in path.iterdir() if file.suffix.lower() in (".zip", *TABLES)], str(path))
        if not path.exists():
            raise InputError(f"{path} is missing: give a Darwin Core archive, or a table with a header line")
        self._path = path
        self._zipped = path.suffix.lower() == ".zip"
        self._root = PurePosixPath()  # the folder of meta.xml
        self.core: Layout
        self.extensions: list[Layout] = []
        names = self._members() if self._zipped else [META] if path.is_dir() else [path.name]
        if described := min((name for name in names if PurePosixPath(name).name == META), key=len, default=None):
            self._root = PurePosixPath(described).parent
            with self._open(META) as file:
                self.core, *self.extensions = read_layouts(file.read(LARGEST_META + 1), f"{described} in {path}")
        else:
            tables = [Path(name) for name in names if name.lower().endswith(TABLES)]
            self.core = self._headed(str(_only(tables, str(path)) if self._zipped else path.name))

    def read(self, layout: Layout, terms: Collection[str]) -> Iterator[Record]:
        """The rows of a table. Cells of terms that it does not have are left out."""
        columns = {term: layout.columns[term.lower()] for term in terms if term.lower() in layout.columns}
        defaults = {term: layout.defaults[term.lower()] for term in terms if term.lower() in layout.defaults}
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
            first = next(_lines(TextIOWrapper(file, "utf-8-sig", "replace", newline=""), self._what(name)), "")
        delimiter = next((mark for mark in ("\t", ",", ";") if mark in first), ",")
        quote = "" if delimiter == "\t" else '"'  # tab-separated files do not quote
        header = next(csv.reader([first], delimiter=delimiter, quotechar='"'), [])
        columns = {short(cell.strip()).lower(): place for place, cell in enumerate(header)}
        return Layout("", (name,), columns, {}, delimiter, quote, skip=1)

    def _members(self) -> list[str]:
        try:
            with ZipFile(self._path) as archive:
                members = archive.infolist()
        except DAMAGE as problem:
            raise InputError(f"{self._path} is damaged or no zip archive ({problem}): download it again") from None
        members = [member for member in members if not member.filename.startswith("__MACOSX/")]
        for member in members:
            name, size = member.filename, member.file_size
            if escapes(name.replace("\\", "/")):
                raise InputError(f"{self._path} is refused: its member {name!r} points outside of it")
            if size > LARGEST or (size > LARGE and size > FOLD * member.compress_size):
                raise InputError(f"{self._path} is refused: its member {name!r} would decompress to {size:,} bytes")
        return [member.filename for member in members]

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        what = self._what(name)
        if escapes(name):
            raise InputError(f"{what} is outside of the archive: download it again")
        try:
            if self._zipped:
                with ZipFile(self._path) as archive, archive.open(str(self._root / name)) as file:
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


def _lines(text: TextIOWrapper, what: str) -> Iterator[str]:
    while line := text.readline(LONGEST):
        if len(line) == LONGEST:
            raise InputError(f"{what} has a line of more than {LONGEST:,} characters: it is not a table")
        yield line


def _only(files: list[Path], where: str) -> Path:
    if len(files) != 1:
        found = f"{len(files)} tables or archives" if files else "no table or archive"
        raise InputError(f"{where} holds {found}: put one Darwin Core archive there, or one table with a header line")
    return files[0]
