"""Classes and functions of other people are found by name, in every process, or the reason is one line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from dhocl.core.errors import InputError
from dhocl.core.outside import announced, find, spell


class Outer:
    class Inner:
        pass


def test_a_name_that_is_spelled_is_found() -> None:
    assert find(spell(Outer.Inner), "method", []) is Outer.Inner
    assert spell(Outer.Inner) == f"{__name__}:Outer.Inner"


def test_what_no_other_process_finds_is_refused() -> None:
    class Local:
        pass

    with pytest.raises(InputError, match="Local is defined in a function, where no other process finds it"):
        spell(Local)
    with pytest.raises(InputError, match="is defined in a function"):
        spell(lambda: None)
    typed_at_a_prompt = type("Typed", (), {"__module__": "__main__", "__qualname__": "Typed"})
    with pytest.raises(InputError, match="Typed is defined in __main__, where no other process finds it"):
        spell(typed_at_a_prompt)
    with pytest.raises(InputError, match=r"Linear is neither a class nor a function.*give a function that makes it"):
        spell(nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Mine", "nowhere:Mine can not be imported: No module named 'nowhere'; run from the folder"),
        ("dhocl.nowhere:Mine", "No module named 'dhocl.nowhere'"),
        ("dhocl.core.errors:Mine", r"dhocl/core/errors\.py has no 'Mine'"),
        ("needs_more:Mine", "needs_more:Mine can not be imported: No module named 'a_dependency'"),
        (":Mine", "is not of the form module:name"),
        ("dhocl.core.errors:", "is not of the form module:name"),
        (".errors:Mine", "is not of the form module:name"),
        ("magic", "there is no data set 'magic': choose one of glyphs, folder, or your own by module:name"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_line(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import a_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=message) as error:
        find(name, "data set", ["glyphs", "folder"])
    assert "\n" not in str(error.value)


def test_a_defect_in_the_module_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "defective.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ZeroDivisionError):
        find("defective:Mine", "method", [])


# -- packages that announce something ---------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed package with a data set, one that is broken, and one whose name is taken."""
    (tmp_path / "announced_here.py").write_text("class Info:\n    summary = 'a summary'\n")
    (tmp_path / "announced_broken.py").write_text("1 / 0\n")
    info = tmp_path / "birds_at_home-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: birds-at-home\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dhocl.datasets]\nbirds = announced_here:Info\nbroken = announced_broken:Info\nglyphs = announced_here:Info\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "announced_here", raising=False)
    return "birds-at-home"


def look_up(name: str) -> Any:
    return find(name, "data set", ["glyphs"])


@pytest.mark.usefixtures("package")
def test_an_announced_name_is_found_and_imported_only_then() -> None:
    with pytest.raises(InputError, match="choose one of glyphs, birds, broken, or your own"):
        look_up("bird")
    assert "announced_here" not in sys.modules
    assert look_up("birds").summary == "a summary"
    with pytest.raises(InputError, match="there is no method 'birds'"):
        find("birds", "method", [])


def test_a_list_has_all_that_is_announced_also_what_is_broken(package: str) -> None:
    assert list(announced("data set", ["glyphs"], look_up)) == [
        ("birds", "a summary", package),
        ("broken", "can not be loaded: ZeroDivisionError: division by zero", package),
    ]
