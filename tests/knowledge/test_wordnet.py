from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label
from dhocl.data.wordnet import read_index
from dhocl.knowledge import Curator, WordNet
from tests.helpers.waiting import grows_in_the_background

DATA = """\
  1 This software and database is being provided to you, the LICENSEE
00000001 03 n 01 entity 0 000 | what is
00000002 05 n 02 animal 0 beast 0 001 @ 00000001 n 0000 | it lives
00000003 05 n 01 bird 0 001 @ 00000002 n 0000 | it flies
00000004 05 n 01 wading_bird 0 001 @ 00000003 n 0000 | it wades
00000005 05 n 01 crane 0 001 @ 00000004 n 0000 | a tall one
00000006 06 n 02 engine 0 machine 0 001 @ 00000001 n 0000 | it was made
00000007 06 n 01 crane 1 001 @ 00000006 n 0000 | it lifts
00000008 06 n 02 derrick 0 rig 0 001 @ 00000007 n 0000 | a simple one
00000009 18 n 01 person 0 002 @ 00000002 n 0000 @ 00000010 n 0000 | you
00000010 03 n 01 agent 0 001 @ 00000001 n 0000 | it acts
00000011 18 n 02 Crane 0 Stephen_Crane 0 001 @i 00000009 n 0000 | he wrote
00000012 05 n 02 sandhill_crane 0 Grus_canadensis 0 001 @ 00000005 n 0000 | of America
00000013 05 n 01 finch 0 001 @ 00000003 n 0000 | it sings
00000014 05 n 01 goose 0 002 @ 00000015 n 0000 @ 00000004 n 0000 | it honks
00000015 05 n 02 pet 0 engine 1 001 @ 00000002 n 0000 | it is kept
"""
INDEX = """\
  1 This software and database is being provided to you, the LICENSEE
agent n 1 1 ~ 1 0 00000010
animal n 1 2 @ ~ 1 1 00000002
beast n 1 2 @ ~ 1 0 00000002
bird n 1 2 @ ~ 1 1 00000003
crane n 3 3 @ ~ @i 3 1 00000011 00000007 00000005
derrick n 1 1 @ 1 0 00000008
engine n 2 2 @ ~ 2 0 00000006 00000015
entity n 1 1 ~ 1 1 00000001
finch n 1 1 @ 1 0 00000013
goose n 1 1 @ 1 1 00000014
machine n 1 1 @ 1 0 00000006
person n 1 2 @ ~ 1 1 00000009
pet n 1 2 @ ~ 1 1 00000015
sandhill_crane n 1 1 @ 1 0 00000012
wading_bird n 1 2 @ ~ 1 0 00000004
"""


def made(folder: Path) -> Path:
    (folder / "data.noun").write_text(DATA)
    (folder / "index.noun").write_text(INDEX)
    (folder / "noun.exc").write_text("geese goose\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path)


@pytest.fixture
def wordnet(folder: Path) -> WordNet:
    return WordNet(folder)


ENTITY, ANIMAL, BIRD, WADER = Label("entity", 0), Label("animal", 0), Label("bird", 1), Label("wading bird", 2)
CRANE, SANDHILL, FINCH, MACHINE = Label("crane", 2), Label("sandhill crane", 3), Label("finch", 3), Label("machine", 1)


def test_the_index_gives_the_senses_in_their_order() -> None:
    assert read_index(INDEX.encode(), "index.noun")["crane"] == (11, 7, 5)
    with pytest.raises(InputError, match=r"index\.noun line 2 is not in WordNet's format"):
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


def test_the_finest_level_counts_before_the_fewest_steps(wordnet: WordNet) -> None:
    goose, pet = Label("goose", 3), Label("pet", 0)
    assert wordnet.query(goose, [pet, BIRD, ANIMAL]) == [(goose, BIRD)], "though a pet is nearer"
    assert wordnet.query(goose, [Label("pet", 1), BIRD, ANIMAL]) == [(goose, Label("pet", 1))]


def test_of_several_senses_that_is_meant_which_has_the_finest_class_above(wordnet: WordNet) -> None:
    assert wordnet.query(CRANE, [BIRD]) == [(CRANE, BIRD)]
    assert wordnet.query(CRANE, [MACHINE]) == [(CRANE, MACHINE)]
    assert wordnet.query(CRANE, [BIRD, MACHINE]) == [(CRANE, MACHINE)], "the more frequent one"
    assert wordnet.query(CRANE, [BIRD, Label("machine", 0)]) == [(CRANE, BIRD)], "the finer one"
    assert wordnet.query(CRANE, [ANIMAL, Label("person", 1)]) == [(CRANE, ANIMAL)], "Stephen is no kind of thing"
    assert wordnet.query(CRANE, [Label("person", 1)]) == [(CRANE, Label("person", 1))]


def test_of_two_names_of_one_thing_the_less_ambiguous_is_the_parent(wordnet: WordNet) -> None:
    assert wordnet.query(CRANE, [Label("engine", 1), MACHINE]) == [(CRANE, MACHINE)]
    assert wordnet.query(CRANE, [Label("engine", 1)]) == [(CRANE, Label("engine", 1))]


def test_a_class_whose_sense_is_settled_is_no_parent_in_another_sense(wordnet: WordNet) -> None:
    derrick = Label("derrick", 3)
    assert wordnet.query(derrick, [CRANE]) == [(derrick, CRANE)], "nothing speaks for a bird"
    assert wordnet.query(derrick, [CRANE, BIRD]) == []
    assert wordnet.query(SANDHILL, [CRANE, BIRD]) == [(SANDHILL, CRANE)]


def test_names_are_found_in_any_case_as_plurals_and_by_number(wordnet: WordNet) -> None:
    for name in ("Wading Bird", "wading  birds", "WADING_BIRDS", "crane (n00000005)", "finches", "geese"):
        label = Label(name, 2)
        assert wordnet.query(label, [BIRD]) == [(label, BIRD)], name
    assert wordnet.query(Label("crane (n00000005)", 2), [MACHINE]) == []
    assert wordnet.query(Label("quetzalcoatlus", 2), [BIRD]) == []


def test_a_name_that_is_repeated_at_a_finer_level_is_below_itself(wordnet: WordNet) -> None:
    again = Label("animal", 1)
    assert wordnet.query(again, [ENTITY, ANIMAL]) == [(again, ANIMAL)]
    assert wordnet.query(Label("beast", 1), [ENTITY, ANIMAL]) == [(Label("beast", 1), ANIMAL)]


def lines(curator: Curator) -> dict[str, list[str]]:
    tree = curator.taxonomy
    return {label.name: [tree.labels[node].name for node in tree.lineage(tree.id(label))[1:]] for label in tree}


@given(st.permutations([SANDHILL, FINCH, MACHINE, ANIMAL, WADER, BIRD]))
def test_the_tree_is_the_same_in_whichever_order_classes_come(order: list[Label]) -> None:
    with TemporaryDirectory() as folder:
        curator = Curator(WordNet(made(Path(folder))), delay=0)
    for label in order:
        curator.observe([label])
    assert lines(curator) == {
        "sandhill crane": ["wading bird", "bird", "animal"],
        "finch": ["bird", "animal"],
        "machine": [],
        "animal": [],
        "wading bird": ["bird", "animal"],
        "bird": ["animal"],
    }


def test_it_can_be_asked_in_the_background(wordnet: WordNet) -> None:
    parents = {SANDHILL: WADER, FINCH: BIRD, WADER: BIRD, BIRD: ANIMAL}
    grows_in_the_background(wordnet, [SANDHILL, FINCH, MACHINE, ANIMAL, WADER, BIRD], parents)


def test_files_that_are_not_there_or_do_not_fit_are_told(folder: Path) -> None:
    (folder / "data.noun").write_text("\n".join(line for line in DATA.splitlines() if not line.startswith("00000006")))
    with pytest.raises(InputError, match=r"data\.noun lacks the noun 00000006; take both files from one WordNet"):
        WordNet(folder)
    (folder / "index.noun").unlink()
    with pytest.raises(InputError, match=r"has no readable index\.noun: give the folder `dict` of WordNet"):
        WordNet(folder)


# -- the published files, where they are installed -------------------------------------------------------------

PUBLISHED = Path("/usr/share/wordnet")  # Debian's wordnet-base
ZOO = {
    "animal": ["bird", "mammal", "fish", "insect", "reptile"],
    "plant": ["tree"],
    "vehicle": ["car", "boat", "aircraft"],
    "bird": ["crane", "robin", "eagle", "kiwi", "turkey", "cardinal", "swallow", "kite", "geese"],
    "mammal": ["dog", "cat", "bat", "seal", "mouse", "boxer", "mole", "wolves"],
    "fish": ["salmon", "bass", "sole", "perch", "ray", "pike"],
    "insect": ["bee", "fly", "beetle", "Monarch"],
    "reptile": ["snake", "turtle"],
    "tree": ["oak", "maple", "palm"],
    "car": ["convertible", "taxi", "jeep"],
    "boat": ["canoe", "ferry"],
    "aircraft": ["airliner", "helicopter", "balloon"],
}


@pytest.mark.skipif(not (PUBLISHED / "data.noun").is_file(), reason="wordnet-base is not installed")
def test_everyday_words_find_their_place_in_the_published_files() -> None:
    wordnet = WordNet(PUBLISHED)
    above = {name: parent for parent, names in ZOO.items() for name in names}
    depth = {name: 0 for name in ZOO if name not in above}
    depth |= {name: 1 if parent in depth else 2 for name, parent in above.items()}
    for seed in range(5):
        order = sorted(depth)
        Random(seed).shuffle(order)
        curator = Curator(wordnet, delay=0, retry=True)
        for name in order:
            curator.observe([Label(name, depth[name])])
        assert {name: line[0] for name, line in lines(curator).items() if line} == above
