from __future__ import annotations

import re
from pathlib import Path

import pytest

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label
from dhocl.knowledge import open_source

LEVELS = ("family", "genus")
FAMILY, PARUS, CORVUS = Label("Paridae", 0), Label("Parus", 1), Label("Corvus", 1)
TREE = "child\tlevel\tparent\nParidae\tfamily\t\nParus\tgenus\tParidae\n"


def test_several_are_asked_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "tree.tsv").write_text(TREE)
    (tmp_path / "taxa.csv").write_text("family,genus,taxonRank\nCorvidae,Corvus,genus\nWrong,Parus,genus\n")
    source = open_source(f"tree:{tmp_path}/tree.tsv", f"darwin_core:{tmp_path}/taxa.csv", levels=LEVELS)
    crows = Label("Corvidae", 0)
    known = [FAMILY, crows, Label("Wrong", 0)]
    assert source.query(PARUS, known) == [(PARUS, FAMILY)]
    assert source.query(CORVUS, known) == [(CORVUS, crows)]
    assert open_source(levels=LEVELS).query(PARUS, known) == []


def test_wordnet_and_a_language_model_have_a_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.noun").write_text(
        "00000001 05 n 01 bird 0 000 | it flies\n00000002 05 n 01 finch 0 001 @ 00000001 n 0000 | it sings\n"
    )
    (tmp_path / "index.noun").write_text("bird n 1 1 ~ 1 1 00000001\nfinch n 1 1 @ 1 0 00000002\n")
    monkeypatch.setenv("DHOCL_LLM_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("DHOCL_LLM_MODEL", "none")
    source = open_source(f"wordnet:{tmp_path}", "llm", levels=LEVELS)
    bird, finch = Label("bird", 0), Label("finch", 1)
    assert source.query(finch, [bird]) == [(finch, bird)]
    assert source.query(CORVUS, [bird]) == [], "the model is asked in the background"
    source.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no knowledge source ''"),
        ("tree", "there is no knowledge source 'tree': give tree:FILE, wordnet:DIR, darwin_core:PATH or llm"),
        ("tree:", "there is no knowledge source 'tree:'"),
        ("llm:gpt", "there is no knowledge source 'llm:gpt'"),
        ("oracle:x", "there is no knowledge source 'oracle:x'"),
        ("tree:{}/nothing.tsv", "nothing.tsv"),
        ("tree:{}/tree.tsv", "tree.tsv has the levels family, genus: expected genus, species"),
        ("wordnet:{}", "has no readable data.noun: give the folder `dict`"),
        ("darwin_core:{}/nothing.zip", "nothing.zip is missing"),
        ("llm", "a language model needs DHOCL_LLM_URL"),
    ],
)
def test_what_can_not_be_opened_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    (tmp_path / "tree.tsv").write_text(TREE)
    monkeypatch.delenv("DHOCL_LLM_URL", raising=False)
    with pytest.raises(InputError, match=re.escape(message)) as told:
        open_source(text.format(tmp_path), levels=("genus", "species"))
    assert "\n" not in str(told.value)
