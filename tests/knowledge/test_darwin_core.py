from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label
from dhocl.knowledge import Curator, DarwinCore, Synonym
from tests.helpers.dwca_files import described, meta, tsv, zipped
from tests.helpers.waiting import grows_in_the_background

LEVELS = ("Family", "Genus", "Species")
TERMS = ("scientificName", "taxonRank", "parentNameUsageID", "acceptedNameUsageID")
CHECKLIST = (
    ("1", "Passeriformes", "order", "", ""),
    ("2", "Paridae Vigors, 1825", "family", "1", ""),
    ("3", "Parus Linnaeus, 1758", "genus", "2", ""),
    ("4", "Cyanistes Kaup, 1829", "genus", "2", ""),
    ("5", "Cyanistes caeruleus (Linnaeus, 1758)", "species", "4", "5"),
    ("6", "Parus caeruleus Linnaeus, 1758", "species", "3", "5"),
    ("7", "Parus major Linnaeus, 1758", "SPECIES", "3", ""),
    ("8", "Pariti", "tribe", "2", ""),
    ("9", "Melaniparus", "genus", "8", ""),
    ("10", "Melaniparus niger", "species", "9", ""),
    ("11", "Parus britannicus", "species", "3", "12"),
    ("12", "Parus major newtoni Prazak", "subspecies", "7", ""),
    ("13", "Parus fringillago Pallas, 1811", "", "", "7"),
    ("14", "Parus sultaneus", "", "3", ""),
)
FAMILY, PARUS, CYANISTES = Label("Paridae", 0), Label("Parus", 1), Label("Cyanistes", 1)
BLUE, OLD_BLUE, GREAT = Label("Cyanistes caeruleus", 2), Label("Parus caeruleus", 2), Label("Parus major", 2)


def made(folder: Path) -> DarwinCore:
    table = tsv(("id", *TERMS), *CHECKLIST)
    return DarwinCore(zipped(folder / "a.zip", meta__xml=meta(described("t.txt", TERMS)), t__txt=table), LEVELS)


@pytest.fixture
def checklist(tmp_path: Path) -> DarwinCore:
    return made(tmp_path)


def test_links_go_to_the_nearest_known_rank(checklist: DarwinCore) -> None:
    assert checklist.query(GREAT, [FAMILY, PARUS, CYANISTES]) == [(GREAT, PARUS)]
    assert checklist.query(GREAT, [FAMILY, CYANISTES]) == [(GREAT, FAMILY)]
    assert checklist.query(PARUS, [FAMILY, GREAT, BLUE]) == [(PARUS, FAMILY), (GREAT, PARUS)]
    black = Label("Melaniparus niger", 2)
    assert checklist.query(black, [FAMILY]) == [(black, FAMILY)], "over a rank that is no level"
    assert checklist.query(Label("Corvus", 1), [FAMILY]) == []
    assert checklist.query(Label("Parus major", 1), [FAMILY]) == [], "of another rank"


def test_synonyms_resolve_to_the_accepted_name(checklist: DarwinCore) -> None:
    assert checklist.accepted(OLD_BLUE) == BLUE
    assert checklist.accepted(GREAT) == GREAT
    assert checklist.accepted(Label("Parus britannicus", 2)) == GREAT, "a synonym of its subspecies"
    assert checklist.accepted(Label("Parus fringillago", 2)) == GREAT, "a synonym without a rank"
    nobody = Label("Parus sultaneus", 2)
    assert checklist.accepted(nobody) == nobody, "without a rank, and no synonym"
    same = Synonym(OLD_BLUE, BLUE)
    assert checklist.query(OLD_BLUE, [PARUS, CYANISTES]) == [same, (OLD_BLUE, CYANISTES)]
    assert checklist.query(OLD_BLUE, [PARUS, CYANISTES, BLUE]) == [same, (BLUE, CYANISTES)]
    assert checklist.query(BLUE, [PARUS, CYANISTES, OLD_BLUE]) == [same, (OLD_BLUE, CYANISTES)]
    assert checklist.query(CYANISTES, [FAMILY, OLD_BLUE, GREAT]) == [(CYANISTES, FAMILY), (OLD_BLUE, CYANISTES)]
    assert checklist.query(BLUE, [BLUE, GREAT]) == []


def test_names_may_carry_their_author(checklist: DarwinCore) -> None:
    full = Label("Parus major Linnaeus, 1758", 2)
    genus = Label("Parus Linnaeus, 1758", 1)
    assert checklist.query(full, [genus]) == [Synonym(full, GREAT), (full, genus)]


@given(st.permutations([OLD_BLUE, GREAT, FAMILY, PARUS, CYANISTES, BLUE]), st.integers(0, 2), st.integers(1, 3))
def test_the_tree_is_the_same_in_whichever_order_classes_come(order: list[Label], delay: int, batch: int) -> None:
    with TemporaryDirectory() as folder:
        curator = Curator(made(Path(folder)), delay)
    for start in range(0, len(order), batch):
        curator.observe(order[start : start + batch])
    for _ in range(delay):
        curator.observe([FAMILY])
    tree = curator.taxonomy
    lines = {label: [tree.labels[node] for node in tree.lineage(tree.id(label))[1:]] for label in tree}
    assert lines == {
        GREAT: [PARUS, FAMILY],
        FAMILY: [],
        PARUS: [FAMILY],
        CYANISTES: [FAMILY],
        BLUE: [CYANISTES, FAMILY],
    }
    assert tree.id(OLD_BLUE) == tree.id(BLUE)


def test_it_can_be_asked_in_the_background(checklist: DarwinCore) -> None:
    parents = {GREAT: PARUS, PARUS: FAMILY, CYANISTES: FAMILY, BLUE: CYANISTES}
    grows_in_the_background(checklist, [OLD_BLUE, GREAT, FAMILY, PARUS, CYANISTES, BLUE], parents)


def test_a_table_of_occurrences_tells_as_much(tmp_path: Path) -> None:
    """As GBIF gives them: ranks in columns, the name as it was identified, the columns as they are accepted."""
    file = tmp_path / "occurrence.csv"
    file.write_text(
        tsv(
            ("gbifID", "family", "genus", "species", "taxonRank", "scientificName", "acceptedScientificName"),
            ("1", "Paridae", "Cyanistes", "Cyanistes caeruleus", "SPECIES", "Parus caeruleus Linnaeus, 1758", ""),
            ("2", "Paridae", "Parus", "", "GENUS", "Parus Linnaeus, 1758", ""),
            ("3", "Paridae", "Parus", "Parus major", "SUBSPECIES", "Parus major newtoni Prazak, 1894", ""),
            ("4", "Paridae", "Cyanistes", "", "SPECIES", "Parus teneriffae", "Cyanistes teneriffae (Lesson, 1831)"),
            ("5", "Sittidae", "", "", "FAMILY", "Sittidae", ""),
        )
    )
    source = DarwinCore(file, LEVELS)
    assert source.query(BLUE, [CYANISTES, PARUS]) == [(BLUE, CYANISTES)]
    assert source.query(OLD_BLUE, [CYANISTES, PARUS]) == [Synonym(OLD_BLUE, BLUE), (OLD_BLUE, CYANISTES)]
    assert source.query(GREAT, [FAMILY, PARUS]) == [(GREAT, PARUS)]
    assert source.accepted(Label("Parus teneriffae", 2)) == Label("Cyanistes teneriffae", 2)
    assert source.query(FAMILY, [CYANISTES, GREAT]) == [(CYANISTES, FAMILY), (GREAT, FAMILY)]


def test_a_species_may_be_told_by_its_epithet(tmp_path: Path) -> None:
    file = tmp_path / "taxa.csv"
    file.write_text(
        "family,genus,specificEpithet,taxonRank\nParidae,Parus,major,\nParidae,Parus,,\nParidae,Sitta,x,genus\n"
    )
    source = DarwinCore(file, LEVELS)
    assert source.query(GREAT, [PARUS, FAMILY]) == [(GREAT, PARUS)]
    assert source.query(Label("Sitta x", 2), [Label("Sitta", 1)]) == []
    great = Label("Parus major", 1)
    assert DarwinCore(file, ("family", "species")).query(great, [FAMILY]) == [(great, FAMILY)]


def test_a_name_that_a_rank_has_twice_needs_its_parent(tmp_path: Path) -> None:
    file = tmp_path / "taxa.csv"
    file.write_text(
        "family,genus,taxonRank,scientificName\nMoraceae,Morus,genus,Morus L.\nSulidae,Morus,genus,Morus Vieillot\n"
        ",Morus,genus,Morus\n"
    )
    source = DarwinCore(file, LEVELS)
    families = [Label("Moraceae", 0), Label("Sulidae", 0)]
    assert source.query(Label("Morus", 1), families) == []
    told, written = Label("Morus (Sulidae)", 1), Label("Morus Vieillot", 1)
    assert source.query(told, families) == [(told, families[1])]
    assert source.query(written, families) == [Synonym(written, told), (written, families[1])]


def test_lines_that_run_in_circles_come_to_an_end(tmp_path: Path) -> None:
    file = tmp_path / "taxa.tsv"
    file.write_text(
        tsv(
            ("taxonID", *TERMS),
            ("1", "Aus", "genus", "2", "2"),
            ("2", "Bus", "genus", "1", "1"),
            ("3", "Aus bus", "species", "3", ""),
            ("4", "Cus dus", "species", "1", "99"),
        )
    )
    assert DarwinCore(file, LEVELS).query(Label("Cus dus", 2), [Label("Aus", 1)]) == [
        (Label("Cus dus", 2), Label("Aus", 1))
    ]


def test_a_table_without_the_asked_ranks_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("taxonRank,scientificName\ngenus,Parus\n")
    with pytest.raises(InputError, match="has no taxon of the ranks tribe, clade"):
        DarwinCore(tmp_path / "t.csv", ("tribe", "clade"))
