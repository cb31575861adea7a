from __future__ import annotations

from pathlib import Path

import pytest

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.data.treefile import read_tree

HEADER = "child\tlevel\tparent\n"
BIRDS = "birds\torder\nwren\tspecies\ttits\ntits\tfamily\tbirds\nfinches\tfamily\tbirds\n"


def read(tmp_path: Path, text: str) -> tuple[Taxonomy, tuple[str, ...]]:
    file = tmp_path / "tree.tsv"
    file.write_text(text, encoding="utf-8")
    return read_tree(file)


def path(tree: Taxonomy, name: str, level: int) -> list[str]:
    return [tree.labels[node].name for node in tree.lineage(tree.id(Label(name, level)))]


def test_the_order_of_the_ranks_follows_from_the_parents(tmp_path: Path) -> None:
    tree, levels = read(tmp_path, HEADER + BIRDS)
    assert levels == ("order", "family", "species")
    assert path(tree, "wren", 2) == ["wren", "tits", "birds"]
    assert path(tree, "finches", 1) == ["finches", "birds"]


def test_a_stated_order_settles_what_the_parents_do_not(tmp_path: Path) -> None:
    loose = HEADER + "birds\torder\t\nwren\tspecies\tbirds\ntits\tfamily\tbirds\n"
    with pytest.raises(
        InputError, match=r"tree\.tsv: the parents do not determine the order of the levels family, order, species"
    ):
        read(tmp_path, loose)
    tree, levels = read(tmp_path, "# levels: order, family, species\n" + loose)
    assert levels == ("order", "family", "species")
    assert path(tree, "wren", 2) == ["wren", "birds"]  # a rank may be left out


def test_a_repeated_name_means_the_nearest_coarser_rank(tmp_path: Path) -> None:
    padded = "a\torder\nx\torder\na\tfamily\ta\ny\tfamily\tx\na\tspecies\ta\nz\tspecies\ty\n"
    tree, levels = read(tmp_path, HEADER + padded)
    assert levels == ("order", "family", "species")
    assert tree.lineage(tree.id(Label("a", 2))) == [tree.id(Label("a", level)) for level in (2, 1, 0)]


def test_spreadsheet_text_is_read(tmp_path: Path) -> None:
    tree, _ = read(tmp_path, "\ufeff" + (HEADER + BIRDS).replace("\n", "\r\n").replace("wren", 'the "wren"') + "\r\n")
    assert path(tree, 'the "wren"', 2) == ['the "wren"', "tits", "birds"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: expected a header line with the columns child, level, parent"),
        ("# levels: a\n", "is empty"),
        (HEADER, "is empty below its header"),
        ("child\tparent\na\tb\n", "line 1: no column 'level'"),
        ("# levels: a\n\nchild\tlevel\na\ta\n", "line 3: no column 'parent'"),
        (HEADER + "a\torder\n\tfamily\ta\n", "line 3: the child is empty"),
        (HEADER + "a\t\n", "line 2: the level is empty"),
        (HEADER + "a\torder\t\tmore\n", "line 2: 4 cells, but the header has 3 columns"),
        (
            HEADER + BIRDS + "owl\tspecies\tbats\n",
            r"line 6: the parent 'bats' of 'owl' \(species\) is not listed",
        ),
        (
            HEADER + "a\torder\nb\torder\ta\n",
            "line 3: the parent 'a' of 'b' .* is not listed at a coarser level",
        ),
        (HEADER + BIRDS + "wren\tspecies\tfinches\n", r"line 6: 'wren' \(species\) occurs twice"),
        (HEADER + "a\tx\tb\nb\ty\tc\nc\tx\tb\n", "do not determine the order of the levels x, y"),
        (
            "# levels: order, family\n" + HEADER + BIRDS,
            "line 4: unknown level 'species'; known are order, family",
        ),
        ("# levels: order, family, genus, species\n" + HEADER + BIRDS, "no line has the level 'genus'"),
        ("# levels: order, order\n" + HEADER + BIRDS, "must list each rank once"),
        ("# levels: species, family, order\n" + HEADER + BIRDS, "line 4: the parent 'tits' of 'wren'"),
    ],
    ids=range(16),
)
def test_each_fault_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"tree\.tsv.*" + message) as error:
        read(tmp_path, text)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_one_of_another_encoding(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tree\.tsv is missing"):
        read_tree(tmp_path / "tree.tsv")
    (tmp_path / "tree.tsv").write_bytes((HEADER + "Vögel\torder\n").encode("latin-1"))
    with pytest.raises(InputError, match=r"tree\.tsv is not UTF-8 text"):
        read_tree(tmp_path / "tree.tsv")
