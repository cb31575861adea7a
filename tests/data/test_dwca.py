from __future__ import annotations

import re
from pathlib import Path
from zipfile import ZipFile

import pytest

from dhocl.core.errors import InputError
from dhocl.data import dwca
from dhocl.data.dwca import Bundle
from tests.helpers.dwca_files import DWC, described, meta, tsv, zipped

TERMS = ("scientificName", "taxonRank")
TABLE = tsv(("id", *TERMS), ("1", "Aves", "class"), ("2", 'Turdus "x"', "genus"))


def rows(path: Path, *terms: str) -> list[dict[str, str]]:
    bundle = Bundle(path)
    return [cells for _, cells in bundle.read(bundle.core, terms or ("id", *TERMS))]


EXPECTED = [
    {"id": "1", "scientificName": "Aves", "taxonRank": "class"},
    {"id": "2", "scientificName": 'Turdus "x"', "taxonRank": "genus"},
]


def test_an_archive_is_read_zipped_and_extracted(tmp_path: Path) -> None:
    described_by = meta(described("taxon.txt", TERMS))
    assert rows(zipped(tmp_path / "a.zip", meta__xml=described_by, taxon__txt=TABLE)) == EXPECTED
    folder = tmp_path / "extracted"
    folder.mkdir()
    (folder / "meta.xml").write_text(described_by)
    (folder / "taxon.txt").write_text(TABLE)
    (folder / "citations.txt").write_text("cite it")
    assert rows(folder) == EXPECTED
    before = sorted(tmp_path.rglob("*"))
    assert rows(tmp_path / "a.zip", "taxonRank") == [{"taxonRank": "class"}, {"taxonRank": "genus"}]
    assert sorted(tmp_path.rglob("*")) == before, "nothing is unpacked"


def test_separators_encodings_defaults_and_places_are_as_described(tmp_path: Path) -> None:
    attributes = "fieldsTerminatedBy=';' fieldsEnclosedBy='&quot;' ignoreHeaderLines='0' encoding='latin-1'"
    more = f'<field term="{DWC}kingdom" default="Animalia"/>'
    described_by = meta(described("t.csv", TERMS, attributes=attributes, more=more))
    content = '1;"Ærø; a ""name""";species\r\n2;Aves\r\n'.encode("latin-1")
    assert rows(zipped(tmp_path / "a.zip", meta__xml=described_by, t__csv=content), "id", "kingdom", *TERMS) == [
        {"id": "1", "scientificName": 'Ærø; a "name"', "taxonRank": "species", "kingdom": "Animalia"},
        {"id": "2", "scientificName": "Aves", "kingdom": "Animalia"},
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", 'ID,dwc:ScientificName,taxonrank\n1,Aves,class\n2,"Turdus ""x""",genus\n'),
        ("t.csv", '\ufeffid\tscientificName\ttaxonRank\n1\tAves\tclass\n\n2\tTurdus "x"\tgenus\n'),
        ("t.TSV", f'id\t{DWC}scientificName\ttaxonRank\textra\n1\tAves\tclass\n2\tTurdus "x"\tgenus\tz\n'),
        ("t.txt", 'id;scientificName;taxonRank\n1;Aves;class\n2;"Turdus ""x""";genus'),
    ],
)
def test_a_table_with_a_header_line_is_enough(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert rows(tmp_path / name) == EXPECTED
    assert rows(tmp_path) == EXPECTED, "it is the only one in its folder"
    (tmp_path / "zip").mkdir()
    with ZipFile(tmp_path / "zip" / "download.zip", "w") as archive:
        archive.writestr(name, content)
    assert rows(tmp_path / "zip") == EXPECTED


def test_line_ends_of_any_kind_are_read(tmp_path: Path) -> None:
    for end in ("\n", "\r\n", "\r"):
        (tmp_path / "t.tab").write_bytes(TABLE.replace("\n", end).encode())
        assert rows(tmp_path / "t.tab") == EXPECTED


def test_an_archive_may_be_a_packed_folder(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "mac.zip", "w") as archive:
        for name in ("mine/taxon.txt", "mine/other.txt", "__MACOSX/mine/._taxon.txt", "__MACOSX/meta.xml"):
            archive.writestr(name, TABLE)
        archive.writestr("mine/meta.xml", meta(described("taxon.txt", TERMS)))
    assert rows(tmp_path / "mac.zip") == EXPECTED
    with ZipFile(tmp_path / "table.zip", "w") as archive:
        archive.writestr("mine/taxon.txt", TABLE)
        archive.writestr("__MACOSX/mine/._taxon.txt", "junk")
    assert rows(tmp_path / "table.zip") == EXPECTED


def test_rows_know_their_place(tmp_path: Path) -> None:
    bundle = Bundle(zipped(tmp_path / "a.zip", meta__xml=meta(described("t.txt", TERMS)), t__txt=TABLE))
    assert [place for place, _ in bundle.read(bundle.core, TERMS)] == ["t.txt line 2", "t.txt line 3"]


def test_a_folder_with_several_archives_is_ambiguous(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no table or archive: put one"):
        Bundle(tmp_path)
    (tmp_path / "a.csv").write_text("id")
    (tmp_path / "b.tsv").write_text("id")
    with pytest.raises(InputError, match="holds 2 tables or archives: put one"):
        Bundle(tmp_path)
    with pytest.raises(InputError, match=r"c\.csv is missing"):
        Bundle(tmp_path / "c.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('<!DOCTYPE a [<!ENTITY x "lol">]><archive>&x;</archive>', "contains a document type declaration"),
        (meta(described("t.txt", TERMS)).encode("utf-16"), "does not describe an archive"),
        ("<archive>", "does not describe an archive"),
        (meta(), "it needs one core"),
        (meta(described("t.txt", TERMS), described("t.txt", TERMS)), "it needs one core"),
        (meta(described("t.txt", TERMS, attributes='ignoreHeaderLines="-1"')), "'-1' is not a number"),
        (meta(described("t.txt", TERMS, attributes='fieldsTerminatedBy="||"')), "fields between '||'"),
        (meta(described("t.txt", TERMS, attributes='encoding="klingon"')), "klingon"),
        (meta(described("t.txt", TERMS, attributes='encoding="zlib"')), "zlib"),
        (meta(described("t.txt", TERMS, attributes='fieldsTerminatedBy="&#10;"')), "fields between"),
        (meta(described("t.txt", (), more="<field index='3'/>")), "does not describe an archive"),
        (meta(described("../t.txt", TERMS)), "is outside of the archive"),
        (meta(described("/etc/passwd", TERMS)), "is outside of the archive"),
        (meta(described("http://example.org/t.txt", TERMS)), "is missing"),
        (b" " * (2**20 + 1), "larger than"),
    ],
)
def test_a_description_that_can_not_be_followed_is_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    zipped(tmp_path / "a.zip", meta__xml=content, t__txt=TABLE)
    with pytest.raises(InputError, match=re.escape(message)):
        rows(tmp_path / "a.zip")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "meta.xml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=re.escape(message)):
        rows(folder)


def test_a_member_that_points_outside_is_refused(tmp_path: Path) -> None:
    for place, name in enumerate(("../evil.txt", "/evil.txt", "a\\..\\..\\evil.txt")):
        path = tmp_path / f"{place}.zip"
        with ZipFile(path, "w") as archive:
            archive.writestr("meta.xml", meta(described("t.txt", TERMS)))
            archive.writestr("t.txt", TABLE)
            archive.writestr(name, "evil")
        with pytest.raises(InputError, match="points outside of it"):
            Bundle(path)


def test_what_would_grow_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described_by = meta(described("t.txt", TERMS))
    bomb = zipped(tmp_path / "a.zip", meta__xml=described_by, t__txt=b"\0" * 11_000_000)
    with pytest.raises(InputError, match="would decompress to 11,000,000 bytes"):
        Bundle(bomb)
    monkeypatch.setattr(dwca, "FOLD", 10_000)
    with pytest.raises(InputError, match="has a line of more than"):
        rows(bomb)
    monkeypatch.setattr(dwca, "LARGEST", 1_000_000)
    with pytest.raises(InputError, match="would decompress"):
        Bundle(bomb)


def test_damage_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK nonsense")
    with pytest.raises(InputError, match="damaged or no zip archive"):
        Bundle(tmp_path / "a.zip")
    whole = zipped(tmp_path / "b.zip", meta__xml=meta(described("t.txt", TERMS)), t__txt=TABLE * 100).read_bytes()
    place = whole.index(b"t.txt") + 20
    (tmp_path / "b.zip").write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
    with pytest.raises(InputError, match="is damaged"):
        rows(tmp_path / "b.zip")
    zipped(tmp_path / "c.zip", meta__xml=meta(described("t.txt", TERMS)), t__txt=b"id\n1\t\xff\xfe\tx\n")
    with pytest.raises(InputError, match="is not utf-8 text"):
        rows(tmp_path / "c.zip")


def test_a_number_of_header_lines_beyond_the_file_ends(tmp_path: Path) -> None:
    attributes = 'ignoreHeaderLines="999999999999999"'
    zipped(tmp_path / "a.zip", meta__xml=meta(described("t.txt", TERMS, attributes=attributes)), t__txt=TABLE)
    assert rows(tmp_path / "a.zip") == []
