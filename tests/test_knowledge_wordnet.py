from __future__ import annotations

from pathlib import Path

import pytest

from dhocl.data.wordnet import read_index
from dhocl.errors import InputError
from dhocl.knowledge import Curator, WordNet
from dhocl.taxonomy import Label

DATA = """\
  1 This software and database is being provided to you, the LICENSEE
00000001 03 n 01 entity 0 000 | what is
00000002 05 n 02 animal 0 beast 0 001 @ 00000001 n 0000 | it lives
00000003 05 n 01 bird 0 001 @ 00000002 n 0000 | it flies
00000004 05 n 01 wading_bird 0 001 @ 00000003 n 0000 | it wades
00000005 05 n 01 crane 0 001 @ 00000004 n 0000 | a tall one
00000006 06 n 01 machine 0 001 @ 00000001 n 0000 | it was made
00000007 06 n 01 crane 1 001 @ 00000006 n 0000 | it lifts
00000008 06 n 02 derrick 0 rig 0 001 @ 00000007 n 0000 | a simple one
00000009 18 n 01 person 0 002 @ 00000002 n 0000 @ 00000010 n 0000 | you
00000010 03 n 01 agent 0 001 @ 00000001 n 0000 | it acts
00000011 18 n 02 Crane 0 Stephen_Crane 0 001 @i 00000009 n 0000 | he wrote
00000012 05 n 02 sandhill_crane 0 Grus_canadensis 0 001 @ 00000005 n 0000 | of America
00000013 05 n 01 finch 0 001 @ 00000003 n 0000 | it sings
"""
INDEX = """\
  1 This software and database is being provided to you, the LICENSEE
agent n 1 1 ~ 1 0 00000010
animal n 1 2 @ ~ 1 1 00000002
beast n 1 2 @ ~ 1 0 00000002
bird n 1 2 @ ~ 1 1 00000003
crane n 3 3 @ ~ @i 3 1 00000011 00000007 00000005
derrick n 1 1 @ 1 0 00000008
entity n 1 1 ~ 1 1 00000001
finch n 1 1 @ 1 0 00000013
machine n 1 1 @ 1 0 00000006
person n 1 2 @ ~ 1 1 00000009
sandhill_crane n 1 1 @ 1 0 00000012
wading_bird n 1 2 @ ~ 1 0 00000004
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.noun").write_text(DATA)
    (tmp_path / "index.noun").write_text(INDEX)
    return tmp_path


@pytest.fixture
def wordnet(folder: Path) -> WordNet:
    return WordNet(folder)


ENTITY, ANIMAL, BIRD, WADER = Label("entity", 0), Label("animal", 0), Label("bird", 1), Label("wading bird", 2)
CRANE, SANDHILL, FINCH, MACHINE = Label("crane", 2), Label("sandhill crane", 3), Label("finch", 3), Label("machine", 1)


def test_the_index_gives_the_senses_in_their_order() -> None:
    assert read_index(INDEX.encode(), "index.noun")["crane"] == (11, 7, 5)
    with pytest.raises(InputError, match=r"index\.noun line 2 is not of WordNet's form"):
        read_index(b"  1 licence\nbird n 2 1 @ 1 1 00000003\n", "index.noun")


def test_the_parent_is_the_nearest_known_class_above(wordnet: WordNet) -> None:
    assert wordnet.query(FINCH, [ANIMAL, BIRD, FINCH]) == [(FINCH, BIRD)]
    assert wordnet.query(FINCH, [ANIMAL, FINCH]) == [(FINCH, ANIMAL)]
    assert wordnet.query(FINCH, [WADER, MACHINE, FINCH]) == []


def test_known_classes_below_are_linked_to_one_that_comes_between(wordnet: WordNet) -> None:
    assert wordnet.query(BIRD, [ANIMAL, FINCH, SANDHILL, MACHINE]) == [(BIRD, ANIMAL), (FINCH, BIRD), (SANDHILL, BIRD)]
    assert wordnet.query(BIRD, [FINCH, SANDHILL, WADER]) == [(FINCH, BIRD), (WADER, BIRD)], "the crane has the wader"


def test_a_parent_is_of_a_coarser_level(wordnet: WordNet) -> None:
    assert wordnet.query(Label("finch", 1), [ANIMAL, BIRD]) == [(Label("finch", 1), ANIMAL)]
    assert wordnet.query(Label("bird", 3), [FINCH]) == []


def test_of_several_senses_that_is_meant_which_has_a_known_class_above(wordnet: WordNet) -> None:
    assert wordnet.query(CRANE, [BIRD]) == [(CRANE, BIRD)]
    assert wordnet.query(CRANE, [MACHINE]) == [(CRANE, MACHINE)]
    assert wordnet.query(CRANE, [BIRD, MACHINE]) == [(CRANE, MACHINE)], "the more frequent one"
    assert wordnet.query(CRANE, [BIRD, Label("person", 1)]) == [(CRANE, BIRD)], "Stephen is no kind of thing"
    assert wordnet.query(CRANE, [Label("person", 1)]) == [(CRANE, Label("person", 1))]


def test_a_class_whose_sense_is_settled_is_no_parent_in_another_sense(wordnet: WordNet) -> None:
    derrick = Label("derrick", 3)
    assert wordnet.query(derrick, [CRANE]) == [(derrick, CRANE)], "nothing speaks for a bird"
    assert wordnet.query(derrick, [CRANE, BIRD]) == []
    assert wordnet.query(SANDHILL, [CRANE, BIRD]) == [(SANDHILL, CRANE)]


def test_names_are_found_in_any_case_as_plurals_and_by_number(wordnet: WordNet) -> None:
    for name in ("Wading Bird", "wading  birds", "WADING_BIRDS", "crane (n00000005)", "finches"):
        label = Label(name, 2)
        assert wordnet.query(label, [BIRD]) == [(label, BIRD)], name
    assert wordnet.query(Label("crane (n00000005)", 2), [MACHINE]) == []
    assert wordnet.query(Label("quetzalcoatlus", 2), [BIRD]) == []


def test_a_name_that_is_repeated_at_a_finer_level_is_below_itself(wordnet: WordNet) -> None:
    again = Label("animal", 1)
    assert wordnet.query(again, [ENTITY, ANIMAL]) == [(again, ANIMAL)]
    assert wordnet.query(Label("beast", 1), [ENTITY, ANIMAL]) == [(Label("beast", 1), ANIMAL)]


def test_the_tree_grows_as_classes_come(wordnet: WordNet) -> None:
    curator = Curator(wordnet, delay=0)
    for label in (SANDHILL, FINCH, MACHINE, ANIMAL, WADER, BIRD):
        curator.observe([label])
    tree = curator.taxonomy
    lines = {label.name: [tree.labels[node].name for node in tree.lineage(tree.id(label))[1:]] for label in tree}
    assert lines == {
        "sandhill crane": ["wading bird", "bird", "animal"],
        "finch": ["bird", "animal"],
        "machine": [],
        "animal": [],
        "wading bird": ["bird", "animal"],
        "bird": ["animal"],
    }


def test_files_that_are_not_there_or_do_not_fit_are_told(folder: Path) -> None:
    (folder / "data.noun").write_text("\n".join(line for line in DATA.splitlines() if not line.startswith("00000006")))
    with pytest.raises(InputError, match=r"data\.noun lacks the noun 00000006; take both files from one WordNet"):
        WordNet(folder)
    (folder / "index.noun").unlink()
    with pytest.raises(InputError, match=r"has no readable index\.noun: give the folder `dict` of WordNet"):
        WordNet(folder)
