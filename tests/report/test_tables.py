from __future__ import annotations

import csv
import io
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhocl.report.tables import as_csv, as_latex, as_markdown, gap_text, lookup, tabulate

Summaries = dict[tuple[int, str], dict[str, float]]


def seeds(*values: float, name: str = "AAUC", stream: str = "s") -> Summaries:
    return {(seed, f"{stream}{seed}"): {name: value} for seed, value in enumerate(values)}


SUMMARIES: dict[str, Summaries] = {
    "halo": {(0, "s0"): {"AAUC": 50.04, "MS": 1.2}, (1, "s1"): {"AAUC": 52.0, "MS": 1.25}},
    "icarl_sdc": {(0, "s0"): {"AAUC": 40.0, "MS": 1.1}, (1, "s1"): {"AAUC": 42.0, "MS": 1.15}},
    "nothing yet": {},
}


def test_the_best_is_high_or_low_as_the_number_says() -> None:
    table = tabulate("cifar100", ("AAUC", "MS"), SUMMARIES, {})
    assert [[cell.best for cell in line.cells] for line in table.lines] == [
        [True, False],
        [False, True],
        [False, False],
    ]
    assert table.seeds == 2


def test_the_number_of_seeds_is_told() -> None:
    def told(*rows: Summaries) -> str:
        return tabulate("", ("AAUC",), dict(zip("abc", rows, strict=False)), {}).averaging

    both = "Mean ± standard deviation over 2 seeds."
    assert told(seeds(5, 6), seeds(4, 5)) == told(seeds(5, 6), {}) == both
    assert told(seeds(5, 6), seeds(4)) == "Mean ± standard deviation over up to 2 seeds; without ±: one seed."
    assert told(seeds(5, 6, 7), seeds(4, 5)) == "Mean ± standard deviation over up to 3 seeds."
    assert told(seeds(5), seeds(4)) == ""
    assert both in as_markdown(tabulate("", ("AAUC",), {"a": seeds(5, 6)}, {}))


def test_a_bound_is_not_best() -> None:
    rows = {"a": seeds(5, 6), "b": seeds(4, 5), "joint": seeds(9, 9)}
    table = tabulate("", ("AAUC",), rows, {}, ("joint",))
    assert [line.cells[0].best for line in table.lines] == [True, False, False]
    assert [gap_text(line.cells[0], table.numbers[0]) for line in table.lines] == [
        "best",
        "-1.00 ± 0.00 (2)",
        "+3.50 ± 6.35 (2)",
    ]


def test_differences_may_be_to_a_row_that_is_named() -> None:
    rows = {"a": seeds(5, 6), "halo": seeds(4, 5), "joint": seeds(9, 9), "none": {}}
    table = tabulate("", ("AAUC",), rows, {}, ("joint",), reference="halo")
    assert [gap_text(line.cells[0], table.numbers[0]) for line in table.lines] == [
        "+1.00 ± 0.00 (2)",
        "–",
        "+4.50 ± 6.35 (2)",
        "–",
    ]
    assert [line.cells[0].best for line in table.lines] == [True, False, False, False]
    assert "Paired differences to halo:" in as_markdown(table)
    alone = tabulate("", ("AAUC",), {"a": seeds(5, 6), "b": seeds(4, 5)}, {}, reference="halo")
    assert not alone.paired, "the row is not there"


def test_one_seed_is_never_best() -> None:
    table = tabulate("", ("AAUC",), {"a": seeds(50.0), "b": seeds(90.0)}, {})
    assert not any(line.cells[0].best for line in table.lines)
    assert not table.paired
    rows = {"one seed": seeds(90.0), "best": seeds(50, 60), "worse": seeds(49, 58.5)}
    table = tabulate("", ("AAUC",), rows, {})
    assert [line.cells[0].best for line in table.lines] == [False, False, False], "1 and 1.5 are not distinct from 0"
    table = tabulate("", ("AAUC",), rows | {"worse": seeds(49, 59)}, {})
    assert [line.cells[0].best for line in table.lines] == [False, True, False]
    assert [gap_text(line.cells[0], table.numbers[0]) for line in table.lines] == [
        "+40.00 (1)",
        "best",
        "-1.00 ± 0.00 (2)",
    ]
    assert "One seed, or one common seed: not compared." in as_markdown(table)


def test_without_a_common_stream_none_is_best() -> None:
    table = tabulate("", ("AAUC",), {"a": seeds(50, 60), "b": seeds(40, 50, stream="t")}, {})
    assert not any(line.cells[0].best for line in table.lines)


def test_the_best_is_marked_if_pairs_tell_it_from_all_others() -> None:
    rows = {
        "best": seeds(50, 60, 70),
        "not distinct": seeds(52, 55, 69),
        "always 1 below": seeds(49, 58.9, 69.1),
        "of other streams": seeds(52, 55, 69, stream="t"),
        "one seed": seeds(49.0),
    }
    table = tabulate("", ("AAUC",), rows, {})
    assert not any(line.cells[0].best for line in table.lines)
    del rows["not distinct"]
    clear = tabulate("", ("AAUC",), rows, {})
    assert [line.name for line in clear.lines if line.cells[0].best] == ["best"]
    text = as_markdown(table)
    assert "| best | best |" in text
    assert "| not distinct | -1.33 ± 8.72 (3) |" in text
    assert "| always 1 below | -1.00 ± 0.25 (3) |" in text
    assert "| of other streams | – |" in text
    assert "| one seed | -1.00 (1) |" in text


def test_markdown_has_means_spreads_and_what_the_paper_prints() -> None:
    text = as_markdown(tabulate("cifar100", ("AAUC", "MS"), SUMMARIES, {"halo": {"AAUC": 59.2}}))
    assert "| halo | **51.0** ± 1.4 (59.2) | 1.23 ± 0.04 |" in text.replace("1.22", "1.23")
    assert "| icarl_sdc | 41.0 ± 1.4 | **1.12** ± 0.04 |" in text.replace("1.13", "1.12")
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
    table = tabulate("", ("AAUC",), {row: seeds(*found) for row, found in values.items()}, {})
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
    assert lookup({"open.AAUC": 40.0, "AAUC": 50.0}, "open.AAUC") == 40.0
