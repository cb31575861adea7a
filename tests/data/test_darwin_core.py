from __future__ import annotations

import logging
from pathlib import Path

import pytest
from PIL import Image

from dhocl.core.errors import InputError
from dhocl.data import Dataset, Selection, check, load
from dhocl.experiment.config import RunConfig
from dhocl.experiment.run import make_plan
from dhocl.stream import Stream
from tests.helpers.dwca_files import DWC, described, meta, tsv, zipped

TERMS = ("eventDate", "family", "genus", "species", "taxonRank", "scientificName")
ROWS = (
    ("a", "2021-05", "Paridae", "Parus", "Parus major", "SPECIES", "Parus major Linnaeus, 1758"),
    ("b", "2019-05-31T10:00:00Z", "Paridae", "", "", "FAMILY", "Paridae"),
    ("c", "2020-01-01/2020-01-09", "Paridae", "Parus", "", "GENUS", "Parus Linnaeus, 1758"),
    ("d", "2018", "Paridae", "Cyanistes", "Cyanistes caeruleus", "SPECIES", "Parus caeruleus Linnaeus, 1758"),
    ("e", "", "Paridae", "", "", "FAMILY", "Paridae"),
    ("f", "2017", "", "", "", "", "something"),
    ("g", "2017", "Paridae", "", "", "FAMILY", "Paridae"),
)
MEDIA = (
    ("a", "StillImage", "image/jpeg", "https://example.org/photos/1/large.png"),
    ("a", "StillImage", "", "photos/2.png"),
    ("a", "Sound", "audio/mpeg", "https://example.org/1.mp3"),
    ("b", "", "", "photos/3.png"),
    ("c", "StillImage", "image/png", "photos/4.png"),
    ("d", "StillImage", "image/png", "photos/5.png"),
    ("d", "StillImage", "image/png", "photos/gone.png"),
    ("e", "StillImage", "image/png", "photos/3.png"),
    ("f", "StillImage", "image/png", "photos/3.png"),
)
SHADES = {"example.org/photos/1/large.png": 10, **{f"photos/{number}.png": 40 * number for number in range(2, 6)}}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    for name, shade in SHADES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (shade, shade, shade)).save(folder / name)
    return folder


def archive(data: Path) -> None:
    described_by = meta(
        described("occurrence.txt", TERMS, f"{DWC}Occurrence"),
        described(
            "multimedia.txt", ("type", "format", "identifier"), "http://rs.gbif.org/terms/1.0/Multimedia", "extension"
        ),
        described("verbatim.txt", ("type",), f"{DWC}Occurrence", "extension"),
    )
    tables = tsv(("gbifID", *TERMS), *ROWS), tsv(("gbifID", "type", "format", "identifier"), *MEDIA)
    zipped(data / "download.zip", meta__xml=described_by, occurrence__txt=tables[0], multimedia__txt=tables[1])


def shown(dataset: Dataset) -> list[tuple[str, str, int]]:
    labels = [dataset.tree.labels[node] for node in dataset.train.nodes.tolist()]
    shades = dataset.train.images[:, 0, 3, 3].tolist()
    return [(dataset.levels[label.level], label.name, shade) for label, shade in zip(labels, shades, strict=True)]


def test_photographs_come_in_order_each_at_its_own_rank(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    archive(data)
    with caplog.at_level(logging.WARNING):
        source = check("darwin_core", Selection(data, image_size=6))
    assert source.given
    assert source.levels == ("family", "genus", "species")
    labels = [source.tree.labels[node] for node in source.train.nodes]
    assert [(source.levels[label.level], label.name) for label in labels] == [
        ("species", "Cyanistes caeruleus"),
        ("family", "Paridae"),
        ("genus", "Parus"),
        ("species", "Parus major"),
        ("species", "Parus major"),
    ]
    major = source.tree.lineage(int(source.train.nodes[-1]))
    assert [source.tree.labels[node].name for node in major] == ["Parus major", "Parus", "Paridae"]
    for left in ("missing images", "without a date", "without a name", "occurrences without an image"):
        assert f"{left} (1)" in caplog.text


def test_it_is_a_stream_with_some_images_held_out(data: Path) -> None:
    archive(data)
    dataset = load("darwin_core", Selection(data, image_size=6, test_samples=1))
    assert len(dataset.test) == 1
    everything = [
        ("species", "Cyanistes caeruleus", 200),
        ("family", "Paridae", 120),
        ("genus", "Parus", 160),
        ("species", "Parus major", 10),
        ("species", "Parus major", 80),
    ]
    kept = shown(dataset)
    assert len(kept) == 4
    assert kept == [one for one in everything if one in kept]
    stream = Stream(dataset, make_plan(RunConfig(), dataset).table, 2)
    assert [label.name for _, labels in stream.batches() for label in labels] == [name for _, name, _ in kept]


def test_a_plain_table_names_its_images_too(data: Path) -> None:
    (data / "occurrences.csv").write_text(
        "eventDate,genus,scientificName,taxonRank,associatedMedia\n"
        "2020-02-02,Parus,Parus major,species,photos/2.png | photos/3.png\n"
        "2020-01-01,Parus,Parus,genus,photos/4.png\n"
    )
    source = check("darwin_core", Selection(data))
    assert source.levels == ("genus", "species")
    assert [source.tree.labels[node].name for node in source.train.nodes] == ["Parus", "Parus major", "Parus major"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("2020,Parus,genus,../outside.png\n", r"line 2: the image '\.\./outside\.png' is not inside the folder"),
        ("2020,Parus,genus,/etc/passwd\n", "is not inside the folder"),
        ("2020,Parus,genus,https://example.org/../../x.png\n", "is not inside the folder"),
        (f"2020,Parus,genus,{'x' * 5000}.png\n", "no occurrence .* has a date, a name and an image file"),
        ("2020,Parus,genus,nowhere.png\n", "no occurrence"),
        ("", "no occurrence"),
    ],
)
def test_what_can_not_be_used_is_told(data: Path, rows: str, message: str) -> None:
    (data / "occurrences.csv").write_text("eventDate,scientificName,taxonRank,associatedMedia\n" + rows)
    with pytest.raises(InputError, match=message):
        check("darwin_core", Selection(data))


def test_a_checklist_is_no_stream(data: Path) -> None:
    zipped(data / "a.zip", meta__xml=meta(described("t.txt", TERMS)), t__txt=tsv(("id", *TERMS), *ROWS))
    with pytest.raises(InputError, match="rows of type Taxon: expected Occurrence"):
        check("darwin_core", Selection(data))
