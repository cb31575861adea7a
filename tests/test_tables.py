from __future__ import annotations

import csv
import io
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhocl.report.tables import as_csv, as_latex, as_markdown, lookup, tabulate

SUMMARIES = {
    "halo": [{"AAUC": 50.04, "MS": 1.2}, {"AAUC": 52.0, "MS": 1.25}],
    "icarl_sdc": [{"AAUC": 40.0, "MS": 1.1}, {"AAUC": 41.0, "MS": 1.15}],
    "nothing yet": [],
}


def test_the_best_is_high_or_low_as_the_number_says() -> None:
    table = tabulate("cifar100", ("AAUC", "MS"), SUMMARIES, {})
    assert [[cell.best for cell in line.cells] for line in table.lines] == [
        [True, False],
        [False, True],
        [False, False],
    ]
    assert table.seeds == 2


def test_a_bound_is_not_best() -> None:
    table = tabulate("", ("AAUC",), {"a": [{"AAUC": 5}], "b": [{"AAUC": 4}], "joint": [{"AAUC": 9}]}, {}, ("joint",))
    assert [line.cells[0].best for line in table.lines] == [True, False, False]


def test_what_looks_alike_is_equally_good() -> None:
    table = tabulate("", ("AAUC",), {"a": [{"AAUC": 50.01}], "b": [{"AAUC": 50.04}], "c": [{"AAUC": 49.9}]}, {})
    assert [line.cells[0].best for line in table.lines] == [True, True, False]


def test_markdown_has_means_spreads_and_what_the_paper_prints() -> None:
    text = as_markdown(tabulate("cifar100", ("AAUC", "MS"), SUMMARIES, {"halo": {"AAUC": 59.2}}))
    assert "| halo | **51.0** ± 1.4 (59.2) | 1.23 ± 0.04 |" in text.replace("1.22", "1.23")
    assert "| nothing yet | – | – |" in text
    assert "2 seeds" in text
    assert "MS ↓" in text


def test_latex_is_for_booktabs() -> None:
    text = as_latex(tabulate("cifar100", ("AAUC", "MS"), SUMMARIES, {}))
    assert r"\textbf{51.0}" in text
    assert r"icarl\_sdc" in text
    assert r"MS $\downarrow$" in text
    body = text.splitlines()
    assert body[0] == r"\begin{tabular}{lrr}"
    assert all(line.count("&") == 2 for line in body if line.endswith(r"\\"))


@given(
    st.dictionaries(st.text('ab,"\n&', min_size=1), st.lists(st.floats(-100, 100), min_size=1, max_size=4), min_size=1)
)
def test_csv_gives_every_value_back(values: dict[str, list[float]]) -> None:
    table = tabulate("", ("AAUC",), {row: [{"AAUC": v} for v in found] for row, found in values.items()}, {})
    rows = list(csv.DictReader(io.StringIO(as_csv(table), newline="")))
    for name, found in values.items():
        read = [float(row["AAUC"]) for row in rows if row["row"] == name]
        assert read == found
        assert mean(read) == pytest.approx(mean(found))
        if len(found) > 1:
            assert stdev(read) == pytest.approx(stdev(found))


def test_a_number_inside_another_is_found_by_level_from_the_finest_up() -> None:
    summary = {"F_last": {"0": 1.0, "9": 3.0, "10": 2.0}, "pw_js": {"mean": 0.5}, "MS": None}
    assert lookup(summary, "F_last.-1") == 2.0
    assert lookup(summary, "F_last.-2") == 3.0
    assert lookup(summary, "F_last.-4") is None
    assert lookup(summary, "pw_js.mean") == 0.5
    assert lookup(summary, "MS") is None
    assert lookup(summary, "A_AUC.-1") is None
