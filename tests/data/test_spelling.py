from __future__ import annotations

from collections import Counter

import pytest

from dhocl.core.taxonomy import Label
from dhocl.data.spelling import questions

LEVELS = ("family", "genus", "species")
KNOWN = [
    Label("Corvus brachyrhynchos", 2),
    Label("Parus major", 2),
    Label("Corvidae", 0),
    Label("Corvus", 1),
    Label("Pica", 1),
]


def asked(*labels: Label, known: list[Label] = KNOWN) -> list[str]:
    return list(questions(Counter(labels), known, LEVELS))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("Corvus_brachyrhyncos", "Corvus brachyrhynchos"),
        ("corvus brachyrhynchos", "Corvus brachyrhynchos"),
        ("Corvus  brachyrhynchos", "Corvus brachyrhynchos"),
        ("Parus majr", "Parus major"),
    ],
)
def test_a_misspelling_is_asked_about(name: str, nearest: str) -> None:
    assert asked(Label(name, 2)) == [f"{name!r} (species, images: 1) is new: is it {nearest!r}?"]


@pytest.mark.parametrize("name", ["Parus minor", "Corvus corax", "Corvus brachyrhynchos", "Major"])
def test_other_names_and_known_ones_are_not(name: str) -> None:
    assert asked(Label(name, 2)) == []


def test_a_name_of_another_level_is_asked_about() -> None:
    assert asked(Label("Corvidae", 2)) == ["'Corvidae' (species, images: 1) is new: 'Corvidae' is known as family"]
    assert asked(Label("Pica", 2), known=[*KNOWN, Label("Pica", 2)]) == []


def test_of_two_new_names_the_rarer_one_is_asked_about() -> None:
    often, once = Label("Erithacus rubecula", 2), Label("Erithacus rubecola", 2)
    assert asked(often, often, once, known=[]) == [
        "'Erithacus rubecola' (species, images: 1) is new: is it 'Erithacus rubecula'?"
    ]
