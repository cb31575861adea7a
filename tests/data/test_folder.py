from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label
from dhocl.data import Dataset, Selection, load

TREE = """child\tlevel\tparent
bird\tkind
cat\tkind
robin\tspecies\tbird
wren\tspecies\tbird
tabby\tspecies\tcat
"""
SHADES = {"robin": 10, "wren": 60, "tabby": 110, "some bird": 160}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "pics").mkdir(parents=True)
    (folder / "tree.tsv").write_text(TREE)
    for name, shade in SHADES.items():
        Image.new("RGB", (12, 9), (shade, shade, shade)).save(folder / "pics" / f"{name}.png")
    return folder


def read(data: Path, labels: str, **how: int) -> Dataset:
    (data / "labels.csv").write_text(labels)
    return load("folder", Selection(data, image_size=6, **how))  # type: ignore[arg-type]


def shown(dataset: Dataset) -> list[tuple[str, int]]:
    """Label and shade of each training image, in order."""
    nodes, shades = dataset.train.nodes.tolist(), dataset.train.images[:, 0, 3, 3].tolist()
    return [(dataset.tree.labels[node].name, shade) for node, shade in zip(nodes, shades, strict=True)]


PLAIN = (
    "path,label,level,split\n"
    "pics/wren.png,wren,species,train\n"
    "pics/robin.png,robin,species,\n"
    "pics/tabby.png,tabby,species,test\n"
)


def test_rows_labelled_to_the_end_are_no_stream(data: Path) -> None:
    for _ in range(2):  # the second time from the cache
        dataset = read(data, PLAIN)
        assert not dataset.given
        assert dataset.levels == ("kind", "species")
        assert shown(dataset) == [("wren", 60), ("robin", 10)]
        assert dataset.test.nodes.tolist() == [dataset.tree.id(Label("tabby", 1))]
        assert dataset.test.images.unique().tolist() == [110]
        assert dataset.flip


def test_a_label_at_an_inner_node_makes_the_rows_a_stream_in_file_order(data: Path) -> None:
    dataset = read(data, PLAIN + "pics/some bird.png,bird,kind,train\n")
    assert dataset.given
    assert shown(dataset) == [("wren", 60), ("robin", 10), ("bird", 160)]


def test_an_inner_label_of_a_test_row_makes_no_stream(data: Path) -> None:
    assert not read(data, PLAIN + "pics/some bird.png,bird,kind,test\n").given


TIMED = "path,label,level,time,split\npics/tabby.png,tabby,species,,test\n"


@pytest.mark.parametrize("times", [("10", "9", "-1.5"), ("2024-05-02", "2024-05-01T23:00Z", "2023-12-31")])
def test_times_order_the_stream(data: Path, times: tuple[str, ...]) -> None:
    rows = zip(("robin", "wren", "tabby"), times, strict=True)
    dataset = read(data, TIMED + "".join(f"pics/{name}.png,{name},species,{time}\n" for name, time in rows))
    assert dataset.given
    assert shown(dataset) == [("tabby", 110), ("wren", 60), ("robin", 10)]


def test_equal_times_keep_the_order_of_the_file(data: Path) -> None:
    names = ["wren", "robin", "tabby", "wren"] * 20
    rows = "".join(f"pics/{name}.png,{name},species,{row % 2}\n" for row, name in enumerate(names))
    assert [name for name, _ in shown(read(data, TIMED + rows))] == names[::2] + names[1::2]


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ("2024-05-02", "line 4: the time '2024-05-02' is a date, those before are not"),
        ("soon", "line 4: the time 'soon' is neither a number nor an ISO date"),
        ("", "line 4: the time '' is neither"),
        ("nan", "line 4: the time 'nan' is neither"),
    ],
)
def test_times_without_an_order_are_named(data: Path, time: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"labels\.csv {message}"):
        read(data, TIMED + f"pics/wren.png,wren,species,3\npics/robin.png,robin,species,{time}\n")


def test_a_subset_of_a_stream_keeps_its_order(data: Path) -> None:
    rows = "".join(f"pics/{name}.png,{name},species,train\n" for name in ("tabby", "robin") * 4)
    dataset = read(data, PLAIN + "pics/some bird.png,bird,kind,train\n" + rows, samples=4)
    assert dataset.given
    assert [name for name, _ in shown(dataset)][:1] == ["wren"]  # the only one of its class comes first
    assert sorted(name for name, _ in shown(dataset)) == ["bird", "robin", "tabby", "wren"]


def test_a_changed_image_is_not_taken_from_the_cache(data: Path) -> None:
    read(data, PLAIN)
    Image.new("RGB", (30, 30), (200, 200, 200)).save(data / "pics" / "wren.png")
    assert shown(read(data, PLAIN))[0] == ("wren", 200)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("path,label,level", "path,name,level", "line 1: no column 'label'"),
        ("robin,species", "robin,genus", "line 3: unknown level 'genus'; the tree has kind, species"),
        ("robin,species", "robin,kind", r"line 3: 'robin' is not in tree\.tsv at level 'kind'"),
        ("robin,species", "eagle,species", r"line 3: 'eagle' is not in tree\.tsv"),
        ("pics/robin.png", "pics/eagle.png", r"line 3: the image pics/eagle\.png is missing"),
        ("pics/robin.png", "empty.png", r"line 3: the image empty\.png is empty \(0 bytes\)"),
        ("pics/robin.png", "text.png", r"line 3: the image .*text\.png is damaged or of an unknown"),
        ("pics/robin.png", "../secret.png", "line 3: the path '../secret.png' is not inside"),
        ("pics/robin.png", "/etc/passwd", "line 3: the path '/etc/passwd' is not inside"),
        ("pics/robin.png", "", "line 3: the path '' is not inside"),
        ("species,train", "species,valid", "line 2: unknown split 'valid'; write train or test"),
        (PLAIN[PLAIN.index("pics/wren") : PLAIN.index("pics/tabby")], "", "has no training rows"),
        (PLAIN, "", "is empty: expected a header line"),
        (PLAIN, "path,label,level\n", "is empty below its header"),
        ("species,train", "species,train,x,y", "line 2: 6 cells, but the header has 4 columns"),
    ],
    ids=range(15),
)
def test_each_fault_is_named_with_its_line(data: Path, old: str, new: str, message: str) -> None:
    (data / "empty.png").touch()
    (data / "text.png").write_text("no image")
    (data.parent / "secret.png").write_bytes((data / "pics" / "wren.png").read_bytes())
    assert old in PLAIN
    with pytest.raises(InputError, match=r"labels\.csv.*" + message) as error:
        read(data, PLAIN.replace(old, new, 1))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("gone", ["labels.csv", "tree.tsv"])
def test_a_missing_file_is_named(data: Path, gone: str) -> None:
    (data / "labels.csv").write_text(PLAIN)
    (data / gone).unlink()
    with pytest.raises(InputError, match=f"{gone} is missing"):
        load("folder", Selection(data))


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    for folder in (None, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=r"`data` must be a folder with labels\.csv"):
            load("folder", Selection(folder))


def test_some_training_images_can_be_held_out(data: Path) -> None:
    rows = "".join(f"pics/{name}.png,{name},species,train\n" for name in ("wren", "tabby", "robin") * 5)
    dataset = read(data, PLAIN + rows, holdout=True)
    assert (len(dataset.train), len(dataset.test)) == (14, 3)
    assert np.unique(dataset.test.nodes.numpy()).size == 3


def test_where_no_row_is_marked_as_test_some_are_held_out_and_the_stream_keeps_its_order(data: Path) -> None:
    rows = "".join(f"pics/{name}.png,{name},species,train\n" for name in ("wren", "tabby", "robin") * 5)
    unmarked = PLAIN.replace("species,test", "species,train") + rows + "pics/some bird.png,bird,kind,train\n"
    dataset = read(data, unmarked)
    whole = len(dataset.train) + len(dataset.test)
    assert dataset.given
    assert len(dataset.test) == whole // 5
    names = [dataset.tree.labels[node].name for node in dataset.train.nodes.tolist()]
    assert names[-1] == "bird" or "bird" in [dataset.tree.labels[n].name for n in dataset.test.nodes.tolist()]


@pytest.mark.parametrize(
    "labels",
    [
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", "\t"),
        "\ufeff" + PLAIN,
        PLAIN.replace("pics/", "pics\\"),
        PLAIN.replace("species", "Species").replace("path,label,level,split", "Path,LABEL,Level,Split"),
        PLAIN.replace("train", "Train").replace("\n", ",,\n", 2).replace("split,,", "split"),
    ],
    ids=["semicolons", "tabs", "mark", "backslashes", "case", "empty cells"],
)
def test_tables_of_spreadsheets_read_the_same(labels: str, data: Path) -> None:
    assert shown(read(data, labels)) == [("wren", 60), ("robin", 10)]


def test_dates_with_dots_are_read_and_those_with_slashes_named(data: Path) -> None:
    rows = "pics/robin.png,robin,species,{}\npics/wren.png,wren,species,{}\npics/tabby.png,tabby,species,{}\n"
    table = TIMED + rows.format("02.05.2024 10:30", "1.5.2024", "30.4.2024 23:59:59")
    assert [name for name, _ in shown(read(data, table))] == ["tabby", "wren", "robin"]
    with pytest.raises(InputError, match=r"line 3: the time '5/2/2024' is neither .* format the column as yyyy-mm-dd"):
        read(data, TIMED + rows.format("5/2/2024", "5/3/2024", "5/4/2024"))


def test_a_path_on_a_drive_of_windows_is_not_inside(data: Path) -> None:
    with pytest.raises(InputError, match="is not inside"):
        read(data, PLAIN.replace("pics/wren.png", "C:\\\\pics\\\\wren.png"))
