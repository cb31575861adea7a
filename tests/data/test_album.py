from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label
from dhocl.data import tabular
from dhocl.data.album import Album, open_album
from dhocl.data.photos import Photos

LEVELS = ("family", "genus", "species")


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(folder / name)
    return folder


def labels(album: Album) -> dict[str, tuple[str, str]]:
    return {photo.name: (photo.label.name, album.levels[photo.label.level]) for photo in album.photos}


def parent(album: Album, name: str, level: str) -> str:
    tree = album.tree
    return tree.labels[tree.parent(tree.id(Label(name, album.levels.index(level))))].name


def test_folders_by_level_and_class(tmp_path: Path) -> None:
    album = open_album(fill(tmp_path, "Species/raven/1.jpg", "Species/raven/old/2.png", "family/Corvidae/3.TIF"))
    assert album.levels == ("family", "species")
    assert labels(album) == {
        "Species/raven/1.jpg": ("raven", "species"),
        "Species/raven/old/2.png": ("raven", "species"),
        "family/Corvidae/3.TIF": ("Corvidae", "family"),
    }
    assert not album.ordered


def test_folders_as_deep_as_the_levels_are_lineages(tmp_path: Path) -> None:
    fill(tmp_path, "Corvidae/Corvus/raven/1.jpg", "Corvidae/Corvus/2.jpg", "Paridae/3.jpg")
    album = open_album(tmp_path, LEVELS)
    assert list(labels(album).values()) == [("Corvus", "genus"), ("raven", "species"), ("Paridae", "family")]
    assert parent(album, "raven", "species") == "Corvus"
    assert parent(album, "Corvus", "genus") == "Corvidae"
    with pytest.raises(InputError, match="folders are 3 deep, but the levels are genus, species"):
        open_album(tmp_path, ("genus", "species"))
    with pytest.raises(InputError, match="folders are 3 deep"):
        open_album(tmp_path)


def test_plain_folders_are_classes_of_the_finest_level(tmp_path: Path) -> None:
    fill(tmp_path, "raven/1.jpg", "crow/2.jpg", "crow/.hidden.jpg", "loose.jpg")
    assert set(labels(open_album(tmp_path, LEVELS)).values()) == {("raven", "species"), ("crow", "species")}
    assert open_album(tmp_path).levels == ("class",)


def test_a_table_with_a_column_for_each_rank(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = tmp_path / "photos.csv"
    table.write_text(
        "File;Family;Genus;Species;Split\n"
        "a\\1.jpg;Corvidae;Corvus;raven;\n"
        "a\\2.jpg;Corvidae;Corvus;;Test\n"
        "a\\3.jpg;Paridae;Corvus;crow;train\n"
        "a\\4.jpg;Corvidae;Corvus;crow;train\n"
    )
    with caplog.at_level(logging.WARNING):
        album = open_album(table)
    assert album.levels == LEVELS
    assert labels(album)["a/2.jpg"] == ("Corvus", "genus")
    assert [photo.test for photo in album.photos] == [False, True, False, False]
    assert album.photos[0].path == tmp_path / "a" / "1.jpg"
    assert parent(album, "Corvus", "genus") == "Corvidae"
    assert "line 4: is Corvus (genus) below Paridae, or below Corvidae as in 3 other rows?" in caplog.text


def test_a_tree_beside_the_table_gives_levels_and_parents(tmp_path: Path) -> None:
    (tmp_path / "tree.tsv").write_text("child\tlevel\tparent\nbird\tkind\nrobin\tspecies\tbird\n")
    (tmp_path / "labels.csv").write_text(
        "path,label,level,time\n2.jpg,robin,Species,2.1.2024\n1.jpg,wren,species,1.2.2023"
    )
    album = open_album(tmp_path)
    assert album.levels == ("kind", "species")
    assert labels(album) == {"1.jpg": ("wren", "species"), "2.jpg": ("robin", "species")}
    assert [photo.name for photo in album.photos] == ["1.jpg", "2.jpg"], "by time"
    assert album.ordered
    assert parent(album, "robin", "species") == "bird"
    (tmp_path / "labels.csv").write_text("path,label,level\n2.jpg,robin,genus\n")
    with pytest.raises(InputError, match=r"tree\.tsv has the levels kind, species: expected family, genus"):
        open_album(tmp_path, ("family", "genus"))


def test_an_archive_of_occurrences(tmp_path: Path) -> None:
    (tmp_path / "occurrence.txt").write_text(
        "gbifID\tscientificName\ttaxonRank\tfamily\tgenus\teventDate\tassociatedMedia\n"
        "1\tCorvus corax\tspecies\tCorvidae\tCorvus\t2024-05-02\t1.jpg\n"
        "2\tCorvus\tgenus\tCorvidae\tCorvus\t2024-05-01\t2.jpg\n"
    )
    fill(tmp_path, "1.jpg", "2.jpg")
    album = open_album(tmp_path)
    assert album.levels == LEVELS
    assert labels(album) == {"2.jpg": ("Corvus", "genus"), "1.jpg": ("Corvus corax", "species")}
    assert album.ordered
    coarse = open_album(tmp_path, ("family", "genus"))
    assert set(labels(coarse).values()) == {("Corvus", "genus")}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("label,level\nraven,species\n", "no column of paths; name it path"),
        ("path,remark\n1.jpg,nice\n", "add the columns label and level, or one for each level"),
        ("path,label,level\n1.jpg,,species\n", "line 2: no label"),
        ("path,label,level\n1.jpg,raven,tribe\n", "line 2: unknown level 'tribe'"),
        ("path,species\n1.jpg,\n", "line 2: no label"),
        ("path,species,split\n1.jpg,raven,perhaps\n", "unknown split 'perhaps'"),
        ("path,species,time\n1.jpg,raven,5/6/2024\n", "day and month can not be told apart"),
        ("path,species\n", "lists no photograph"),
    ],
)
def test_mistakes_are_named(table: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text(table)
    with pytest.raises(InputError, match=message):
        open_album(tmp_path, LEVELS)


def test_the_order_of_unknown_levels_must_be_given(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("path,label,level\n1.jpg,a,x\n2.jpg,b,y\n")
    with pytest.raises(InputError, match="the order of the levels x, y is unknown"):
        open_album(tmp_path)
    assert open_album(tmp_path, ("y", "x")).levels == ("y", "x")


cells = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8)


@given(
    rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=5),
    delimiter=st.sampled_from(",;\t"),
    mark=st.booleans(),
    ends=st.sampled_from(["\n", "\r\n"]),
    upper=st.booleans(),
    padding=st.integers(0, 2),
)
def test_every_way_to_write_a_table_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    delimiter: str,
    mark: bool,
    ends: str,
    upper: bool,
    padding: int,
) -> None:
    def quoted(cell: str) -> str:
        return cell if delimiter == "\t" else '"' + cell.replace('"', '""') + '"'

    header = "PATH,Label" if upper else "path,label"
    lines = [header.replace(",", delimiter)]
    lines += [delimiter.join(map(quoted, row)) + delimiter * padding for row in rows]
    file = tmp_path_factory.mktemp("tables") / "t.csv"
    file.write_bytes((("\ufeff" if mark else "") + ends.join(lines) + ends).encode())
    sheet = tabular.read(file, None, ("path", "label"))
    assert [(row.cells["path"], row.cells["label"]) for row in sheet.rows] == rows


def test_photographs_are_files_folders_patterns_and_tables(tmp_path: Path) -> None:
    fill(tmp_path, "b/2.jpg", "b/1.HEIC.png", "a.tif", ".b/3.jpg")
    (tmp_path / "list.tsv").write_text("photo\tremark\nb\\2.jpg\tx\nb/1.HEIC.png\t\n")
    assert list(Photos([tmp_path])) == [tmp_path / "a.tif", tmp_path / "b/1.HEIC.png", tmp_path / "b/2.jpg"]
    assert list(Photos([f"{tmp_path}/**/*.jpg", tmp_path / "a.tif"])) == [tmp_path / "b/2.jpg", tmp_path / "a.tif"]
    assert list(Photos([tmp_path / "list.tsv"])) == [tmp_path / "b/2.jpg", tmp_path / "b/1.HEIC.png"]
    assert Photos([tmp_path, tmp_path / "list.tsv"]).count() == 5


def test_very_many_files_are_not_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "3.jpg", "1.jpg", "2.jpg")
    monkeypatch.setattr("dhocl.data.photos.SORTED", 2)
    assert sorted(Photos([tmp_path])) == [tmp_path / f"{n}.jpg" for n in (1, 2, 3)]
