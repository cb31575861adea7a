"""Figures that compare rows: what is drawn, from runs whose numbers are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dhocl.report import comparisons
from dhocl.report.comparisons import curves, forest, front
from dhocl.report.svg import COLOURS, GREY


def runs(values: dict[str, list[float]], cost: dict[str, float] | None = None) -> dict[str, list[Any]]:
    """A run for each row and seed, with this AAUC at the end and half of it before."""
    return {
        row: [
            SimpleNamespace(
                key=(seed, f"stream {seed}"),
                summary={"AAUC": value, "MS": -value, "cost_vs_er": (cost or {}).get(row, 1.0)},
                curve=[{"samples": 10, "accuracy": value / 2}, {"samples": 20, "accuracy": value}],
            )
            for seed, value in enumerate(found)
        ]
        for row, found in values.items()
    }


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the drawing functions were given."""
    seen: dict[str, Any] = {}
    for name in ("plotted", "intervals", "places"):
        function = getattr(comparisons, name)

        def called(*given: Any, name: str = name, function: Any = function) -> Any:
            seen[name] = given
            return function(*given)

        monkeypatch.setattr(comparisons, name, called)
    return seen


def test_the_six_best_curves_are_in_colour(drawn: dict[str, Any]) -> None:
    picture = curves("letters", "accuracy", runs({f"row {place}": [place, place + 2] for place in range(9)}))
    lines = {line.name: line for line in drawn["plotted"][0][0].lines}
    assert {name for name, line in lines.items() if line.label} == {f"row {place}" for place in range(3, 9)}
    assert {line.colour for line in lines.values() if not line.label} == {GREY}
    assert len({line.colour for line in lines.values()}) == 7
    assert lines["row 4"].y == [2.5, 5]
    assert picture.shown.caption == "In grey: 3 others."


def test_a_forest_has_the_paired_differences_the_best_first(drawn: dict[str, Any]) -> None:
    rows = runs({"halo": [50, 60, 70], "up": [53, 62, 74], "down": [49, 58.9, 69.1], "noisy": [55, 55, 71]})
    (picture,) = forest("letters", "AAUC", "halo", rows)
    names, values, _, better = drawn["intervals"]
    assert names == ["up", "noisy", "down"]
    assert values[0][0] == pytest.approx(3)
    assert values[2] == pytest.approx((-1, 0.248), abs=1e-3)
    assert better == 1
    assert "3 common seeds" in picture.shown.caption
    (_,) = forest("letters", "MS", "halo", rows)
    assert drawn["intervals"][0] == ["up", "noisy", "down"]  # the lowest first
    assert drawn["intervals"][3] == -1


def test_a_difference_of_one_seed_is_grey_without_a_line(drawn: dict[str, Any]) -> None:
    (picture,) = forest("letters", "AAUC", "halo", runs({"halo": [50, 60], "one": [90], "two": [51, 61]}))
    names, values, *_ = drawn["intervals"]
    assert dict(zip(names, values, strict=True)) == {"one": (40, None), "two": (1, 0)}
    assert "Mean over up to 2 common seeds" in picture.shown.caption
    assert "A mark without a line has one seed." in picture.shown.caption
    figure = picture.figure
    assert figure is not None
    one, two = (container.lines for container in figure.axes[0].containers)
    assert (one[0].get_color(), one[2]) == (GREY, ())
    assert two[0].get_color() == COLOURS[0]
    assert len(two[2]) == 1


def test_without_the_row_to_compare_with_there_is_no_forest() -> None:
    assert list(forest("letters", "AAUC", "halo", runs({"a": [1, 2]}))) == []
    assert list(forest("letters", "AAUC", "halo", runs({"halo": [1, 2]}))) == []


def test_the_front_has_what_nothing_cheaper_reaches(drawn: dict[str, Any]) -> None:
    cost = {"cheap": 0.2, "cheap and worse": 0.2, "dominated": 1.0, "dear": 10.0, "dear and equal": 11.0}
    values = {"cheap": 40, "cheap and worse": 30, "dominated": 35, "dear": 50, "dear and equal": 50}
    front("letters", "AAUC", runs({row: [value] for row, value in values.items()}, cost))
    points, best, *_ = drawn["places"]
    assert [point.name for point in best] == ["cheap", "dear"]
    assert [(point.x, point.y) for point in best] == [(0.2, 40), (10, 50)]
    assert len(points) == 5
