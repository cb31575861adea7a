"""The page that compares runs: its tables, what its rows are called, and where it leads."""

from __future__ import annotations

from pathlib import Path

from dhocl.experiment.config import RunConfig
from dhocl.experiment.record import Record
from dhocl.report import write_report
from dhocl.report.compare import CURVES, compare
from tests.helpers.run_pages import Page, make_run


def test_comparison(tmp_path: Path) -> None:
    gains = {("halo", 0): 4.0, ("halo", 1): 6.0, ("acil", 0): 1.0, ("acil", 1): 11.0}
    runs = [make_run(tmp_path / f"{m}{s}", RunConfig(method=m, seed=s), gain) for (m, s), gain in gains.items()]
    runs.append(make_run(tmp_path / "er", RunConfig(method="er"), gain=50.0, end=False))
    page = Page(write_report(runs, tmp_path / "page.html"))
    groups, _, _, decoded, seeds, gaps, plain = page.tables
    assert groups == [["method", "seeds"], ["halo", "0, 1"], ["acil", "0, 1"], ["er", "0"]]
    assert gaps[0][0] == "minus the best"
    assert gaps[1][:2] == ["halo, 2 seeds", "-1.00 ± 50.82 (2)"], "gains 4 - 1 and 6 - 11; t(1) = 12.7062"
    assert gaps[2][:2] == ["acil, 2 seeds", "best"]
    assert plain == [
        ["run", "AAUC", "FAUC", "MS ↓", "FFAcc", "FAAcc", "open.AAUC"],
        ["halo, seed 0", "70.0", "60.0", "1.26", "58.0", "68.0", "50.0"],
        ["halo, seed 1", "72.0", "62.0", "1.24", "60.0", "70.0", "52.0"],
        ["acil, seed 0", "67.0", "57.0", "1.29", "55.0", "65.0", "47.0"],
        ["acil, seed 1", "77.0", "67.0", "1.19", "65.0", "75.0", "57.0"],
        ["er, seed 0unfinished", "116.0", "106.0", "0.80", "104.0", "114.0", "96.0"],
    ]
    assert seeds[1:] == [
        ["halo, 2 seeds", "71.0 ± 1.4", "61.0 ± 1.4", "1.25 ± 0.01", "59.0 ± 1.4", "69.0 ± 1.4", "51.0 ± 1.4"],
        ["acil, 2 seeds", "72.0 ± 7.1", "62.0 ± 7.1", "1.24 ± 0.07", "60.0 ± 7.1", "70.0 ± 7.1", "52.0 ± 7.1"],
    ]
    assert decoded[1][1] == "71.0"
    assert page.texts("h1") == ["Glyphs: 5 runs compared"]
    assert not page.texts("a"), "no run has a report"
    assert page.figures == {title for title, _ in CURVES.values()}
    assert "tree" not in {attributes.get("id") for _, attributes, _ in page.elements}


def test_a_comparison_leads_to_its_runs_and_names_settings_that_differ(tmp_path: Path) -> None:
    configs = {
        "a b/0": RunConfig(buffer=50),
        "a b/1": RunConfig(buffer=50, seed=1),
        "c": RunConfig(settings={"gamma": 2}),
    }
    runs = [make_run(tmp_path / name, config) for name, config in configs.items()]
    for run in runs[:2]:
        (run / "report.html").write_text("a page")
    page = Page(write_report(runs, tmp_path / "there" / "compare.html"))
    assert page.tables[0] == [["buffer", "gamma", "seeds"], ["50", "–", "0, 1"], ["1000", "2", "0"]]
    hrefs = [attributes["href"] for tag, attributes, _ in page.elements if tag == "a"]
    assert set(hrefs) == {"../a%20b/0/report.html", "../a%20b/1/report.html"}


def test_labels_name_what_differs(tmp_path: Path) -> None:
    configs = [RunConfig(settings={"doubt": False}), RunConfig(buffer=50), RunConfig(buffer=50)]
    records = [Record(make_run(tmp_path / f"r{place}", config)) for place, config in enumerate(configs)]
    tables = compare(records)["tables"]
    assert [line.name for line in tables[0].runs.lines] == [
        "amber, buffer 1000, doubt False",
        "amber, buffer 50 (r1)",
        "amber, buffer 50 (r2)",
    ]
    assert tables[0].seeds.lines == []  # the same seed twice tells nothing about seeds
    assert not any(cell.best for line in tables[0].runs.lines for cell in line.cells)  # each has one seed


def test_runs_in_folders_of_the_same_name_each_have_a_row(tmp_path: Path) -> None:
    records = [Record(make_run(tmp_path / place / "run", RunConfig())) for place in "ab"]
    assert [line.name for line in compare(records)["tables"][0].runs.lines] == ["amber (run)", "amber (run) 2"]
