"""Methods under conditions, from runs whose numbers are known."""

from __future__ import annotations

import csv
import io
from types import SimpleNamespace
from typing import Any

import pytest

from dhocl.experiment.recipes import Across
from dhocl.report import across
from dhocl.report.across import across_pictures, across_tables
from dhocl.report.tables import as_csv, as_markdown


def seeds(*values: float) -> list[Any]:
    return [
        SimpleNamespace(key=(seed, f"stream {seed}"), summary={"AAUC": value, "MS": 100 - value})
        for seed, value in enumerate(values)
    ]


CONDITIONS = {
    "cifar100, as it is": {"halo": seeds(50, 60), "amber": seeds(55, 65)},
    "cifar100, buffer 100": {"halo": seeds(40, 50)},
}
BACKBONES = {"cifar100": {f"{row} {kind}": seeds(50) for row in ("er", "acil") for kind in ("Lite0", "ResNet-50 DINO")}}


def test_a_line_is_a_condition_and_a_column_a_method() -> None:
    aauc, ms = across_tables(Across(("AAUC", "MS"), "halo"), CONDITIONS, {})
    assert (aauc.title, ms.title) == ("AAUC: cifar100", "MS ↓: cifar100")
    text = as_markdown(aauc)
    assert "|  | amber | halo |" in text
    assert "| as it is | **60.0** ± 7.1 | 55.0 ± 7.1 |" in text
    assert "| buffer 100 | – | 45.0 ± 7.1 |" in text
    assert "Bold: the best of its line" in text
    assert "Paired differences to halo:" in text
    assert "| as it is | +5.00 ± 0.00 (2) | – |" in text
    assert "| as it is | **40.00** ± 7.07 | 45.00 ± 7.07 |" in as_markdown(ms), "lower is better"
    lines = list(csv.DictReader(io.StringIO(as_csv(aauc))))
    assert [list(line.values()) for line in lines] == [
        ["as it is", "0", "55", "50"],
        ["as it is", "1", "65", "60"],
        ["buffer 100", "0", "", "40"],
        ["buffer 100", "1", "", "50"],
    ]


def test_rows_without_conditions_are_methods_with_a_backbone() -> None:
    printed = {"cifar100": {"acil ResNet-50 DINO": {"AAUC": 38.1}}}
    (table,) = across_tables(Across(("AAUC",)), BACKBONES, printed)
    assert [number.name for number in table.numbers] == ["acil", "er"]
    assert [line.name for line in table.lines] == ["Lite0", "ResNet-50 DINO"]
    assert [cell.printed for cell in table.lines[1].cells] == [38.1, None]


def test_each_method_has_a_line_of_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    real = across.dots
    monkeypatch.setattr(across, "dots", lambda *given: drawn.append(given) or real(*given))
    (picture,) = across_pictures(Across(("AAUC", "MS")), CONDITIONS)
    names, series, axis = drawn[0]
    assert (names, axis) == (["as it is", "buffer 100"], "AAUC")
    assert [[value and value[0] for value in own.values] for own in series] == [[60, None], [55, 45]]
    assert [key.name for key in picture.shown.keys] == ["amber", "halo"]
    assert [key.colour for key in picture.shown.keys] == [own.colour for own in series]
