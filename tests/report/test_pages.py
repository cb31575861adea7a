"""Markdown pages of a sweep: what they contain comes from the files of the runs, through the real command."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from dhocl.core.errors import InputError
from dhocl.experiment import recipes
from dhocl.experiment.recipes import Front, Numbers, Recipe, Scale
from dhocl.experiment.sweep import prepare
from dhocl.report import write_pages, write_sweep_report
from tests.helpers.small_runs import dhocl, finish
from tests.helpers.sweeps import cells

FIVE = ("AAUC", "FAUC", "MS", "FFAcc", "FAAcc")
CLAIM = re.compile(r"\| \[?(Claim|AMBER|Backbones)")
LINK = re.compile(r"\]\(([^)#]+)(#[^)]*)?\)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of `main` with a few methods, two seeds, whose metrics are then set by hand: HALO is below ACIL in MS."""
    out = tmp_path_factory.mktemp("sweep")
    shown = (Numbers(FIVE), Front("AAUC"))
    with pytest.MonkeyPatch.context() as patch:
        recipe = Recipe("All methods on all data sets", "Table 1", lambda _: cells("acil", "halo"), shown)
        patch.setitem(recipes.RECIPES, "main", recipe)
        for job in prepare(out, ["main"], Scale.smoke, range(2), None):
            finish(job.config, job.folder)
    for path in out.glob("runs/*/summary.json"):
        summary = json.loads(path.read_text())
        better, seed = "halo" in str(path), int(path.parent.name.split("-")[2])
        summary |= {"AAUC": 50.0 + 2 * better + seed, "FAUC": 40.0 + better + seed, "MS": 1.5 + better / 10 + seed}
        path.write_text(json.dumps(summary))
    return out


@pytest.fixture(scope="module")
def pages(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("documents") / "results"
    told = dhocl("report", str(folder), "--pages", str(out))
    assert (told.returncode, told.stdout.strip()) == (0, f"Wrote {out / 'index.md'}"), told.stderr
    return out


def lines(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))


def test_the_summary_has_what_was_run_and_a_line_for_each_claim(pages: Path, folder: Path) -> None:
    text = (pages / "index.md").read_text()
    assert "mean nothing" in text
    assert f"dhocl sweep main --scale smoke --seeds 2 --out runs/{folder.name}\n" in text
    assert f"dhocl report runs/{folder.name} --pages" in text
    assert "4 of 4 runs finished" in text
    table = {row.split(" | ")[0]: row for row in text.splitlines() if CLAIM.match(row)}
    assert len(table) == 8
    assert "**not observed in a stream of 15 steps** | 2 / 1 / 45 |" in table["| [Claim 1](main.md#claim-1)"]
    assert "MS, halo − acil on glyphs: +0.100 ± 0.000 (2 seeds)" in table["| [Claim 1](main.md#claim-1)"]
    assert "0 of 5, 0 of 4 rows beaten" in table["| Claim 3"]
    assert "no runs" in table["| Claim 6"]
    assert "](figures/main-glyphs-AAUC-cost.svg)" in text


def test_the_page_of_a_study_names_where_a_claim_fails_and_what_is_missing(pages: Path) -> None:
    text = (pages / "main.md").read_text()
    assert "Of 48 comparisons: 2 support, 1 contradict, 45 not decided." in text
    assert "Contradicting: MS, halo − acil on glyphs: +0.100 ± 0.000 (2 seeds)." in text
    assert "Not decided because of: no runs (45)." in text
    assert "The results of the paper are left out" in text
    assert "(59.2)" not in text
    assert "| halo | **52.5** ± 0.7 |" in text
    assert "mean nothing" in text


def test_every_number_leads_to_a_run_and_its_command(pages: Path, folder: Path) -> None:
    traced = lines(pages / "runs.csv")
    assert len(traced) == 4
    for line in traced:
        summary = json.loads((folder / "runs" / line["run"] / "summary.json").read_text())
        assert [float(line[name]) for name in FIVE] == [summary[name] for name in FIVE]
        assert f"--method {line['row']}" in line["command"]
    found = [line for line in lines(pages / "claims.csv") if line["difference"]]
    assert {(line["claim"], line["metric"], line["verdict"]) for line in found if line["claim"] == "Claim 1"} == {
        ("Claim 1", "AAUC", "supports"),
        ("Claim 1", "FAUC", "supports"),
        ("Claim 1", "MS", "contradicts"),
    }


def test_the_table_of_runs_has_the_costs_too(pages: Path, folder: Path) -> None:
    for line in lines(pages / "runs.csv"):
        summary = json.loads((folder / "runs" / line["run"] / "summary.json").read_text())
        for name in ("open.AAUC", "cost_vs_er", "state_mb"):
            assert float(line[name]) == summary[name]
        assert float(line["level_accuracy.0"]) == summary["level_accuracy"]["0"]


def test_rows_without_a_finished_run_are_left_out_and_counted(folder: Path, tmp_path: Path) -> None:
    some = shutil.copytree(folder, tmp_path / "sweep")
    for path in some.glob("runs/glyphs-acil-*/summary.json"):
        path.unlink()
    write_pages(some, tmp_path / "pages")
    text = (tmp_path / "pages" / "main.md").read_text()
    assert "\n1 row has no finished run. glyphs: acil.\n" in text
    assert "| halo |" in text
    assert "| acil |" not in text
    assert "1 row has no finished run. glyphs: acil." in write_sweep_report(some).read_text()
    for path in some.glob("runs/*/summary.json"):
        path.unlink()
    write_pages(some, tmp_path / "none")
    text = (tmp_path / "none" / "main.md").read_text()
    assert "2 rows have no finished run. glyphs: all 2." in text
    assert "## Tables" not in text


def test_a_claim_is_on_one_page_and_others_lead_to_it(folder: Path, tmp_path: Path) -> None:
    more = shutil.copytree(folder, tmp_path / "sweep")
    for recipe, first, second in (("hierarchy_noise", "vacant 40 %", "noise 40 %"), ("delay", "delay 1", "delay 50")):
        plan = (more / "recipes" / "main.json").read_text()
        plan = plan.replace('"row": "halo"', f'"row": "{first}"').replace('"row": "acil"', f'"row": "{second}"')
        (more / "recipes" / f"{recipe}.json").write_text(plan)
    out = write_pages(more, tmp_path / "pages").parent
    assert "## Claim 5" in (out / "delay.md").read_text(), "which decides two of its comparisons"
    other = (out / "hierarchy_noise.md").read_text()
    assert "## Claim 5" not in other
    assert "Claims of other pages that also use these runs: [Claim 5](delay.md#claim-5)." in other
    assert "[Claim 5](delay.md#claim-5)" in (out / "index.md").read_text()


def test_links_and_figures_are_there(pages: Path) -> None:
    for page in pages.glob("*.md"):
        for file, _ in LINK.findall(page.read_text()):
            assert (pages / file).exists(), f"{page.name}: {file}"
    for figure in pages.glob("figures/*.svg"):
        assert "<dc:date>" not in figure.read_text()
    assert len(list(pages.glob("figures/*.svg"))) >= 2


def test_the_same_runs_give_the_same_bytes(pages: Path, folder: Path, tmp_path: Path) -> None:
    write_pages(folder, tmp_path)
    written = {path.relative_to(pages): path.read_bytes() for path in sorted(pages.rglob("*")) if path.is_file()}
    again = {path.relative_to(tmp_path): path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    assert again == written


def test_runs_that_are_not_finished_are_listed_without_numbers(folder: Path, tmp_path: Path) -> None:
    half = shutil.copytree(folder, tmp_path / "sweep")
    for path in half.glob("runs/glyphs-acil-1-*/summary.json"):
        path.unlink()
    write_pages(half, tmp_path / "pages")
    traced = {(line["row"], line["seed"]): line["AAUC"] for line in lines(tmp_path / "pages" / "runs.csv")}
    assert traced == {("acil", "0"): "50.0", ("halo", "0"): "52.0", ("acil", "1"): "", ("halo", "1"): "53.0"}
    text = (tmp_path / "pages" / "main.md").read_text()
    assert "one seed (3)" in text
    assert "3 of 4 runs finished" in text


def test_the_results_of_the_paper_are_shown_in_its_own_setting(folder: Path, tmp_path: Path) -> None:
    paper = shutil.copytree(folder, tmp_path / "sweep")
    plan = paper / "recipes" / "main.json"
    plan.write_text(plan.read_text().replace('"smoke"', '"paper"').replace('"panel": "glyphs"', '"panel": "cifar100"'))
    write_pages(paper, tmp_path / "pages")
    text = (tmp_path / "pages" / "main.md").read_text()
    assert "(59.2)" in text
    assert "left out" not in text
    assert "mean nothing" not in text
    assert "59.2" in write_sweep_report(paper).read_text()


def test_the_results_of_the_paper_are_left_out_at_other_scales(folder: Path, pages: Path, tmp_path: Path) -> None:
    small = shutil.copytree(folder, tmp_path / "sweep")
    plan = small / "recipes" / "main.json"
    plan.write_text(plan.read_text().replace('"panel": "glyphs"', '"panel": "cifar100"'))
    html = write_sweep_report(small).read_text()
    for text in ((pages / "main.md").read_text(), html):
        assert "59.2" not in text
        assert "The results of the paper are left out" in text


def test_what_can_not_be_written(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no sweep"):
        write_pages(tmp_path, tmp_path / "pages")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="which is a file"):
        write_pages(folder, tmp_path / "file")
    told = dhocl("report", str(folder), str(folder), "--pages", str(tmp_path / "pages"))
    assert told.returncode == 2
    assert "--pages is for one sweep" in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1
