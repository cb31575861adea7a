"""The grids of the recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dhocl.experiment import recipes
from dhocl.experiment.recipes import RECIPES, Bars, GridCell, Numbers, Recipe, Scale
from dhocl.experiment.sweep import prepare
from dhocl.experiment.sweep.naming import run_name
from dhocl.methods.registry import method_settings
from dhocl.report.claims import CLAIMS
from tests.helpers.sweeps import cells


@pytest.mark.parametrize("scale", Scale)
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_grid_of_distinct_rows_at_every_scale(name: str, scale: Scale) -> None:
    grid = RECIPES[name].cells(scale)
    assert len({(cell.panel, cell.row) for cell in grid}) == len(grid)
    assert len({run_name(cell.config) for cell in grid}) == len(grid), "two rows are the same run"
    assert bool(grid) == (name != "dataset_stats")


def test_what_the_paper_prints_belongs_to_rows_that_are_there() -> None:
    for name, recipe in RECIPES.items():
        grid = recipe.cells(Scale.paper)
        for panel, rows in recipe.printed.items():
            known = {cell.row for cell in grid if cell.panel == panel}
            assert set(rows) <= known, (name, panel, set(rows) - known)


@pytest.mark.parametrize("name", RECIPES)
def test_every_row_has_settings_that_its_method_knows(name: str) -> None:
    for cell in RECIPES[name].cells(Scale.smoke):
        method_settings(cell.config.method, cell.config.settings)


def test_image_sizes_are_those_of_table_5() -> None:
    sizes = {
        cell.config.dataset: cell.config.image_size for recipe in RECIPES.values() for cell in recipe.cells(Scale.paper)
    }
    assert sizes == {"cifar100": 32} | dict.fromkeys(("aircraft", "cub200", "inaturalist2018", "imagenet_h"), 224)


def test_figure_2_has_five_numbers_and_figure_11_leaves_out_predla() -> None:
    bars = [exhibit.name for exhibit in RECIPES["losses"].exhibits if isinstance(exhibit, Bars)]
    assert bars == ["AAUC", "FAUC", "MS", "FFAcc", "FAAcc"]
    halo = [cell.config.settings for cell in RECIPES["throughput"].cells(Scale.paper) if cell.config.method == "halo"]
    assert halo == [{}, {"heads": "linear"}]


def at_full_scale(recipe: str) -> dict[tuple[str, str], GridCell]:
    return {(cell.panel, cell.row): cell for cell in RECIPES[recipe].cells(Scale.full)}


def test_at_full_scale_most_methods_have_one_seed() -> None:
    found = at_full_scale("main")
    assert [found["cifar100", row].seeds for row in ("halo", "amber, doubled side", "predla", "er")] == [None] * 4
    assert [found["cifar100", row].seeds for row in ("mir", "gdumb")] == [1, 1]
    assert found["cub200", "mir"].config.samples is None


@pytest.mark.parametrize("recipe", ["main", "best"])
def test_at_full_scale_long_methods_have_a_panel_of_their_own_with_others_on_the_same_stream(recipe: str) -> None:
    found = at_full_scale(recipe)
    for panel, dataset, images, long in (
        ("cifar100, 10,000 images", "cifar100", 10_000, ["joint"]),
        ("cub200, 1,198 images", "cub200", 1_198, ["joint", "gdumb"]),
    ):
        rows = {row: cell for (place, row), cell in found.items() if place == panel}
        assert {"halo", "er", "acil", "amber", *long} <= set(rows)
        assert ("rm, 4 epochs" in rows) == (recipe == "main")
        assert {(cell.seeds, cell.config.samples, cell.config.dataset) for cell in rows.values()} == {
            (1, images, dataset)
        }
        assert not {(dataset, row) for row in long} & set(found)
        assert found[dataset, "halo"].config.samples is None
    assert ("cifar100", "gdumb") in found, "there it costs less than five times replay"


def test_the_ablation_has_halo_on_both_maps() -> None:
    found = {cell.row: cell.config.settings for cell in RECIPES["ablation"].cells(Scale.full)}
    hpr = {cell.row: cell.config.settings for cell in RECIPES["hpr"].cells(Scale.full)}
    assert found["halo"] == {}
    assert found["halo, middle map"] == hpr["adapter, middle map"]


def test_an_untrained_backbone_only_checks_that_everything_runs() -> None:
    rows = {scale: [cell.row for cell in RECIPES["backbones"].cells(scale)] for scale in (Scale.smoke, Scale.mini)}
    assert "er untrained" in rows[Scale.smoke]
    assert "er untrained" not in rows[Scale.mini]


def test_at_full_scale_conditions_have_two_seeds_but_those_of_the_claims_three() -> None:
    found = at_full_scale("conditions")
    assert {cell.seeds for cell in found.values()} == {2, None}
    three = {(panel.removeprefix("cifar100, "), row) for (panel, row), cell in found.items() if cell.seeds is None}
    links = ("as it is", "vacant 40 %", "noise 40 %", "delay 50")
    assert three == {
        *((condition, row) for condition in links for row in ("halo", "amber")),
        *((condition, "halo") for condition in ("buffer 100", "buffer 5000")),
        *((condition, row) for condition in ("as it is", "5 groups", "50 groups") for row in ("er", "acil")),
    }
    parts = [comparison for claim in CLAIMS for part in claim.parts for comparison in part.comparisons]
    arms = {arm for part in parts for option in part.options for quantity in option for arm in quantity.arms}
    assert {(arm.condition, arm.row) for arm in arms if arm.recipe == "conditions"} <= three
    assert "1 group" not in {panel.removeprefix("cifar100, ") for panel, _ in found}
    assert "cifar100, 1 group" in {cell.panel for cell in RECIPES["conditions"].cells(Scale.mini)}


def test_a_row_with_fewer_seeds_has_the_first_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = cells("acil", "er")
    small = Recipe("Two methods", "nowhere", lambda _: [both[0], both[1]._replace(seeds=1)], (Numbers(),))
    monkeypatch.setitem(recipes.RECIPES, "main", small)
    jobs = prepare(tmp_path, ["main"], Scale.smoke, range(3, 5), None)
    assert [(job.config.method, job.config.seed) for job in jobs] == [("acil", 3), ("er", 3), ("acil", 4)]


def test_smoke_needs_no_data() -> None:
    assert {cell.config.dataset for recipe in RECIPES.values() for cell in recipe.cells(Scale.smoke)} == {"glyphs"}
