"""Read meta.xml, which describes the tables of a Darwin Core archive."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from xml.etree import ElementTree

from dhocl.core.errors import InputError

LARGEST = 2**20  # bytes
ESCAPES = {r"\t": "\t", r"\n": "\n", r"\r": "\r"}


@dataclass(frozen=True)
class Layout:
    """The file format of a table."""

    kind: str  # row type, such as Taxon or Occurrence; empty if unknown
    files: tuple[str, ...]
    columns: dict[str, int]  # term in lower case -> index in the row; other tables refer to `id`
    defaults: dict[str, str]  # term in lower case -> value
    delimiter: str = ","
    quote: str = '"'  # empty if there is none
    encoding: str = "utf-8"
    skip: int = 0  # header lines


def read_layouts(content: bytes, what: str) -> list[Layout]:
    """The core, then the extensions."""
    if len(content) > LARGEST:
        raise InputError(f"{what} is refused: it is larger than {LARGEST:,} bytes")
    try:
        text = content.decode("utf-8-sig")
        if "<!DOCTYPE" in text:  # it could define entities
            raise InputError(f"{what} is refused: it contains a document type declaration")
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
            term = short(field.attrib["term"]).lower()
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
    TextIOWrapper(BytesIO(), encoding)  # raises for codecs that are not text encodings
    skip = _count(table.get("ignoreHeaderLines") or "0")
    return Layout(short(table.get("rowType", "")), files, columns, defaults, delimiter, quote, encoding, skip)


def short(name: str) -> str:
    """The last part of a term's URI.

    >>> short("http://rs.tdwg.org/dwc/terms/taxonID"), short("dwc:taxonID"), short("taxonID")
    ('taxonID', 'taxonID', 'taxonID')
    """
    return name.rstrip("/#").replace("#", "/").replace(":", "/").rpartition("/")[2]


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a number")
    return int(text)
