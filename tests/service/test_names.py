"""Names through a process of its own."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dhocl.service.names import JOINER, NON_JOINER, clean_name
from tests.helpers.serving import NEW, examples, post, started

INVISIBLE = [
    "ro\u200bbin",
    "robin\u200d",
    "\u200crobin",
    "ro\u200dbin",
    "robin\U000e0061",
    "robin\u2060",
    "\ufeffrobin",
    "ro\u00adbin",
    "robin\ufe0f",
    "\u3164",
    "\u2800",
    "ro\u034fbin",
    "robin\u061c",
    "\u0645\u06cc\u200c",
    "\u0915\u094d\u200d",
    "robin\u202e",
    "\u062f\u200c\u062f",
    "\u0645\u0627\u200c\u0647",
    "\u0628\u200c\u0621",
    "\u0628\u200c\u0640",
    "\u0628\u200c\u064e\u0628",
    "\u0780\u200c\u0780",
    "\u0628\u200d\u0628",
    "\U0001d159",
    "\U00016fe4",
    "robin\U0001bc9d",
]
NEEDED = [
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\u0628\u064e\u200c\u0628",
    "\u0646\u06cc\u200c\u0627",
    "\u0915\u094d\u200d\u0937",
    "\u0915\u094d\u200c\u0937",
    "\u0d9a\u0dca\u200d\u0dbb",
    "h\u00e9ron",
    "\u30c4\u30d0\u30e1",
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with started("--model", tmp_path_factory.mktemp("names") / "m", *NEW) as (_, client):
        yield client


@pytest.mark.parametrize("name", INVISIBLE, ids=ascii)
def test_invisible_names_are_refused(served: httpx.Client, name: str) -> None:
    answer = post(served, [(examples(1)[0][0], name, "species")])
    assert (answer.status_code, "not allowed in a name" in answer.json()["detail"]) == (422, True)
    revision = {"kind": "rename", "class": {"name": "bird", "rank": "kind"}, "to": name}
    assert served.post("/taxonomy", json=revision).status_code == 422


@pytest.mark.parametrize("name", NEEDED, ids=ascii)
def test_joiners_that_a_script_needs_are_kept(served: httpx.Client, name: str) -> None:
    assert post(served, [(examples(1)[0][0], name, "species")]).status_code == 202
    assert served.get("/observations/recent?n=1").json()[0]["name"] == name


# -- against the tables of Unicode -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def regex() -> Any:
    return pytest.importorskip("regex", reason="knows the properties that unicodedata lacks")


def accepted(name: str) -> bool:
    try:
        return bool(clean_name(name))
    except ValueError:
        return False


ARABIC = [chr(code) for code in (*range(0x600, 0x700), *range(0x750, 0x780), *range(0x870, 0x900))]


def test_the_non_joiner_is_allowed_between_letters_that_join(regex: Any) -> None:
    """RFC 5892, appendix A.1: only there it changes how its neighbours look."""
    present = [c for c in ARABIC if unicodedata.category(c).startswith("L")]
    left = {c for c in present if regex.match(r"\p{Joining_Type=D}", c)}
    right = left | {c for c in present if regex.match(r"\p{Joining_Type=R}", c)}
    assert len(left) > 150
    for c in present:
        assert accepted(f"{c}{NON_JOINER}\u0628") == (c in left), ascii(c)
        assert accepted(f"\u0628{NON_JOINER}{c}") == (c in right), ascii(c)
        assert not accepted(f"\u0628{JOINER}{c}")


def test_default_ignorable_characters_are_refused(regex: Any) -> None:
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    ignorable = [chr(code) for code in codes if regex.match(r"\p{Default_Ignorable_Code_Point}", chr(code))]
    assert len(ignorable) > 4000
    assert [ascii(c) for c in ignorable if accepted(f"ro{c}bin") or accepted(f"\u0628{c}\u0628")] == [r"'\u200c'"]


@given(
    st.text(
        st.sampled_from(["a", "\u0628", "\u062f", "\u064e", "\u0915", "\u094d", NON_JOINER, JOINER, " "]), max_size=6
    )
)
@example("\u0628\u064e\u200c\u0628")
def test_names_without_their_joiners_look_different(name: str) -> None:
    """A joiner is between letters, the first of which has a virama, or both of which join."""
    if not accepted(name):
        return
    clean = clean_name(name)
    assert clean_name(clean) == clean
    for place, character in enumerate(clean):
        if character in (NON_JOINER, JOINER):
            before, after = clean[:place], clean[place + 1 :]
            assert after[0] in "a\u0628\u062f\u0915"
            if not before.endswith("\u094d"):
                assert character == NON_JOINER
                assert before.rstrip("\u064e\u094d").endswith("\u0628")
                assert after[0] in "\u0628\u062f"
