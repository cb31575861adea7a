"""Images that are not files: behind addresses, and in Parquet files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

from dhocl.core import places
from dhocl.core.errors import InputError
from dhocl.core.photo import square
from dhocl.core.places import Cell, Remote
from dhocl.data.album import open_album
from dhocl.data.files import read_each
from dhocl.data.photos import Photos
from tests.helpers.albums import labelled

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def bucket() -> Iterator[fsspec.AbstractFileSystem]:
    """A file system behind addresses: memory://photos/..."""
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


@pytest.fixture
def photos(tmp_path: Path) -> list[dict[str, str]]:
    """The rows of a table of 12 photographs, with absolute paths."""
    folder = labelled(tmp_path / "photos", 12)
    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [row | {"path": str(folder / row["path"])} for row in rows]


def pixels(album_data: Path) -> np.ndarray:
    album = open_album(album_data, ("kind", "species"))
    return np.concatenate([x.numpy() for _, x in read_each(album.photos, lambda photo: photo.path, 16, 5)])


def expected(rows: list[dict[str, str]]) -> np.ndarray:
    return np.stack([square(Path(row["path"]), 16, "").transpose(2, 0, 1) for row in rows])


def test_a_table_of_addresses(tmp_path: Path, photos: list[dict[str, str]], bucket: fsspec.AbstractFileSystem) -> None:
    table = tmp_path / "far.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "level"])
        for number, row in enumerate(photos):
            bucket.pipe(f"/photos/{number}.png", Path(row["path"]).read_bytes())
            writer.writerow([f"memory://photos/{number}.png", row["label"], row["level"]])
    assert np.array_equal(pixels(table), expected(photos))
    assert list(Photos([table])) == [Remote(f"memory://photos/{number}.png") for number in range(12)]
    assert list(Photos(["memory://photos/3.png"])) == [Remote("memory://photos/3.png")]


@pytest.mark.parametrize("nested", [False, True])
def test_images_inside_of_parquet_files(tmp_path: Path, photos: list[dict[str, str]], nested: bool) -> None:
    """Two files, as a data set of several parts, with groups of five rows."""
    for part, rows in enumerate((photos[:7], photos[7:])):
        contents = [Path(row["path"]).read_bytes() for row in rows]
        images = [{"bytes": content, "path": None} for content in contents] if nested else contents
        columns = {"Image": images, "label": [r["label"] for r in rows], "level": [r["level"] for r in rows]}
        (tmp_path / "data").mkdir(exist_ok=True)
        parquet.write_table(pyarrow.table(columns), tmp_path / "data" / f"{part}.parquet", row_group_size=5)
    assert np.array_equal(pixels(tmp_path / "data"), expected(photos))
    album = open_album(tmp_path / "data", ("kind", "species"))
    assert [(photo.label.name, album.levels[photo.label.level]) for photo in album.photos] == [
        (row["label"], row["level"]) for row in photos
    ]
    assert len({photo.name for photo in album.photos}) == 12


def test_a_parquet_table_of_paths(tmp_path: Path, photos: list[dict[str, str]]) -> None:
    columns = {name: [row[name] for row in photos] for name in ("path", "label", "level")}
    parquet.write_table(pyarrow.table(columns), tmp_path / "labels.parquet")
    assert np.array_equal(pixels(tmp_path / "labels.parquet"), expected(photos))


def test_what_can_not_be_read_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no.parquet").write_bytes(b"no table")
    with pytest.raises(InputError, match=r"no\.parquet is damaged or no Parquet file"):
        open_album(tmp_path / "no.parquet")
    with pytest.raises(InputError, match=r"^memory://photos/none\.png is missing"):
        square(Remote("memory://photos/none.png"), 16, "memory://photos/none.png")
    with pytest.raises(InputError, match="known"):
        places.remote("ftpx://host/1.png")
    parquet.write_table(pyarrow.table({"image": [None, b"no image"]}), tmp_path / "some.parquet")
    with pytest.raises(InputError, match=r"some\.parquet row 1 has no image"):
        square(Cell(tmp_path / "some.parquet", "image", 0), 16, "")
    with pytest.raises(InputError, match="row 2 is damaged or of an unknown image format"):
        square(second := Cell(tmp_path / "some.parquet", "image", 1), 16, str(second))
    monkeypatch.setattr(places, "LARGEST", 2**20)
    fsspec.filesystem("memory").pipe("/huge.png", bytes(2**20 + 1))
    with pytest.raises(InputError, match=r"huge\.png is larger than 1 MB"):
        square(Remote("memory://huge.png"), 16, "")


def test_an_error_of_the_network_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Remote) -> bytes:
        raise ConnectionError("the host does not answer\nat all")

    monkeypatch.setattr(Remote, "read", refused)
    with pytest.raises(InputError, match=r"^https://a.b/1.png can not be read: the host does not answer$"):
        square(Remote("https://a.b/1.png"), 16, "")


def test_a_kind_of_address_that_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(kind: str) -> None:
        raise ImportError(f"Install {kind}fs to access {kind}")

    monkeypatch.setattr(fsspec, "get_filesystem_class", lacking)
    places._check.cache_clear()
    with pytest.raises(InputError, match="addresses with s3:// can not be opened: Install s3fs"):
        places.remote("s3://bucket/1.png")
    places._check.cache_clear()


def test_a_damaged_image_of_an_archive_is_skipped(tmp_path: Path, photos: list[dict[str, str]]) -> None:
    contents = [Path(row["path"]).read_bytes() for row in photos[:3]]
    table = {"image": [contents[0], b"no", contents[2]], "label": ["a", "b", "c"], "level": ["species"] * 3}
    parquet.write_table(pyarrow.table(table), tmp_path / "some.parquet")
    (read, x), *_ = read_each(open_album(tmp_path / "some.parquet").photos, lambda photo: photo.path, 16, 5)
    assert [bool(problem) for _, problem in read] == [False, True, False]
    assert len(x) == 2
