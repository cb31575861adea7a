"""Darwin Core archives for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

DWC = "http://rs.tdwg.org/dwc/terms/"


def meta(*tables: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<archive xmlns="http://rs.tdwg.org/dwc/text/">{"".join(tables)}</archive>'


def described(
    file: str,
    terms: Sequence[str],
    kind: str = f"{DWC}Taxon",
    tag: str = "core",
    attributes: str = r'fieldsTerminatedBy="\t" fieldsEnclosedBy="" ignoreHeaderLines="1" encoding="UTF-8"',
    more: str = "",
) -> str:
    """A table of meta.xml; its first column is the id."""
    fields = "".join(f'<field index="{place + 1}" term="{DWC}{term}"/>' for place, term in enumerate(terms))
    own = "id" if tag == "core" else "coreid"
    return (
        f'<{tag} {attributes} rowType="{kind}"><files><location>{file}</location></files>'
        f'<{own} index="0"/>{fields}{more}</{tag}>'
    )


def tsv(header: Sequence[str], *rows: Sequence[str]) -> str:
    return "".join("\t".join(row) + "\n" for row in (header, *rows))


def zipped(path: Path, **files: str | bytes) -> Path:
    """Names are written with __ for a dot."""
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return path
