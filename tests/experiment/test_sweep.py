from __future__ import annotations

import dataclasses
import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from dhocl.core.errors import InputError
from dhocl.core.files import locked
from dhocl.experiment import recipes, sweep
from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import POPULATIONS
from dhocl.experiment.recipes import RECIPES, Bars, Curves, GridCell, Numbers, Recipe, Scale, basis_for
from dhocl.experiment.record import Record
from dhocl.experiment.run import run
from dhocl.experiment.sweep import (
    FAILED,
    Begun,
    Call,
    Ended,
    Job,
    SweepFolder,
    Underway,
    local,
    portable,
    prepare,
    start,
    work,
)
from dhocl.experiment.sweep.naming import run_name
from dhocl.experiment.sweep.work import Place, places
from dhocl.methods.registry import method_settings
from dhocl.report import write_sweep_report
from dhocl.report.claims import CLAIMS
from tests.helpers.albums import labelled
from tests.helpers.small_runs import command
from tests.helpers.sweeps import TINY, cells, curves


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe of two quick runs a seed, in the place of `main`."""
    small = Recipe("Two methods", "nowhere", lambda _: cells("acil", "er"), (Numbers(), Curves()))
    monkeypatch.setitem(recipes.RECIPES, "main", small)


def listen(jobs: list[Job], workers: int = 2, engine: str = "local") -> list[sweep.Event]:
    return list(start(jobs, engine, workers, None))


# -- recipes ---------------------------------------------------------------------------------------------------


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


# -- the folder ------------------------------------------------------------------------------------------------


def test_a_run_is_known_by_what_decides_it() -> None:
    config = RunConfig(**TINY)
    assert run_name(config) == run_name(dataclasses.replace(config, data="elsewhere"))
    for change in ({"seed": 1}, {"buffer": 21}, {"settings": {"hpr": False}}, {"method": "er"}):
        assert run_name(dataclasses.replace(config, **change)) != run_name(config)


def test_recipes_that_share_a_folder_share_runs(tmp_path: Path) -> None:
    prepare(tmp_path, ["learning_curves"], Scale.smoke, range(1), None)
    names = {
        job.folder.name for job in prepare(tmp_path, ["forgetting", "learning_curves"], Scale.smoke, range(2), None)
    }
    assert len(names) == 2 * 7, "all methods of the one are among those of the other"
    assert SweepFolder(tmp_path).recipes == ["forgetting", "learning_curves"]


def test_backbones_of_the_user_are_further_rows(tmp_path: Path) -> None:
    plain = prepare(tmp_path / "a", ["backbones"], Scale.smoke, range(1), None)
    more = prepare(tmp_path / "b", ["backbones"], Scale.smoke, range(1), None, ["hub:nets/one", "hub:nets/two"])
    assert len(more) == len(plain) + 2 * 4
    _, entries, _ = SweepFolder(tmp_path / "b").read("backbones")
    assert {"amber one", "amber two", "er two"} <= {entry.row for entry in entries}


def test_a_backbone_in_a_folder_has_the_same_name_on_every_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for machine in ("here", "there"):
        net = tmp_path / machine / "resnet50-ssl"
        net.mkdir(parents=True)
        monkeypatch.chdir(net.parent)
        asked = "hub:resnet50-ssl" if machine == "here" else f"hub:{net}"
        jobs = prepare(net.parent, ["backbones"], Scale.smoke, range(1), None, [asked], ["er"])
        assert jobs[-1].config.backbone == f"hub:{net}", "which a worker finds in any folder"
        assert portable(jobs[-1].config).backbone == "hub:FOLDER/resnet50-ssl"
        assert portable(portable(jobs[-1].config)) == portable(jobs[-1].config)
        found.append([job.folder.name for job in jobs])
        (call,) = SweepFolder(net.parent).calls("backbones")
        assert call == Call(methods=("er",), backbones=("hub:FOLDER/resnet50-ssl",), seeds=(0,))
        page = write_sweep_report(net.parent).read_text()
        assert "--method er --backbone hub:FOLDER/resnet50-ssl --seeds 1 --out runs/" in page
        assert str(net) not in page
    assert found[0] == found[1]
    assert portable(RunConfig(backbone="hub:facebook/dino")).backbone == "hub:facebook/dino"


def test_a_command_names_a_backbone_only_for_recipes_that_take_one(tmp_path: Path) -> None:
    prepare(tmp_path, ["backbones", "delay"], Scale.smoke, range(1), None, ["hub:mine"])
    folder = SweepFolder(tmp_path)
    assert folder.calls("backbones") == [Call(backbones=("hub:mine",), seeds=(0,))]
    assert folder.calls("delay") == [Call(seeds=(0,))]
    prepare(tmp_path, ["backbones"], Scale.smoke, range(1), None)
    assert "er mine" in {entry.row for entry in folder.read("backbones")[1]}, "rows of earlier calls stay"


def test_seeds_count_from_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "start", lambda jobs, *_: iter(Ended(job, "not run") for job in jobs))
    jobs = sweep.sweep(["tree_growth"], tmp_path, seeds=3, first_seed=4)
    assert [job.config.seed for job in jobs] == [4, 5, 6]
    page = write_sweep_report(tmp_path).read_text()
    assert "seeds 4, 5, 6" in page
    assert f"dhocl sweep tree_growth --scale smoke --seeds 3 --first-seed 4 --out runs/{tmp_path.name}<" in page


def test_some_methods_now_and_the_others_later(tmp_path: Path) -> None:
    some = prepare(tmp_path, ["main"], Scale.smoke, range(1), None, methods=["halo", "er"])
    assert {entry.row for entry in SweepFolder(tmp_path).read("main")[1]} >= {job.config.method for job in some}
    assert {job.config.method for job in some} == {"er", "halo"}
    prepare(tmp_path, ["main"], Scale.smoke, range(1), None, methods=["ncm"])
    rows = [cell.row for cell in RECIPES["main"].cells(Scale.smoke)]
    planned = [entry.row for entry in SweepFolder(tmp_path).read("main")[1]]
    assert planned == [row for row in rows if row in planned], "in the order of the recipe"
    assert {"halo", "er", "ncm"} <= set(planned)
    assert len(planned) < len(rows)
    whole = prepare(tmp_path, ["main"], Scale.smoke, range(1), None)
    assert [entry.row for entry in SweepFolder(tmp_path).read("main")[1]] == rows
    assert SweepFolder(tmp_path).calls("main") == [Call(seeds=(0,))], "which includes the earlier ones"
    assert len(whole) == len(rows)
    with pytest.raises(InputError, match="`method` era: one of acil"):
        sweep.sweep(["main"], tmp_path, methods=["era"])


def test_some_data_sets_now_without_the_others(tmp_path: Path) -> None:
    some = prepare(tmp_path, ["best"], Scale.mini, range(1), None, methods=["er"], datasets=["glyphs"])
    assert [(job.config.method, job.config.dataset) for job in some] == [("er", "glyphs")]
    panels = {entry.panel for entry in SweepFolder(tmp_path).read("best")[1]}
    assert panels == {"glyphs"}, "no rows of data sets that may never be there"
    with pytest.raises(InputError, match="there is no data set 'cub': choose one of glyphs"):
        sweep.sweep(["best"], tmp_path, "mini", datasets=["cub"])


def test_plans_grow(tmp_path: Path) -> None:
    def plan(seeds: range, *methods: str) -> list[int]:
        jobs = prepare(tmp_path, ["delay"], Scale.smoke, seeds, None, methods=methods)
        return sorted({job.config.seed for job in jobs})

    assert plan(range(2)) == [0, 1]
    assert plan(range(2, 4)) == [2, 3], "only those of the call are run"
    folder = SweepFolder(tmp_path)
    _, entries, _ = folder.read("delay")
    assert [(entry.seed, entry.row) for entry in entries] == [
        (seed, f"delay {batches}") for batches in (1, 10, 50) for seed in range(4)
    ]
    before = (tmp_path / "recipes" / "delay.json").read_bytes()
    plan(range(1), "halo")
    assert (tmp_path / "recipes" / "delay.json").read_bytes() == before, "it was planned"
    assert folder.calls("delay") == [Call(seeds=(0, 1)), Call(seeds=(2, 3))]


def test_a_plan_of_another_scale_or_grid_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned() -> list[tuple[str, int]]:
        return [(entry.row, entry.seed) for entry in SweepFolder(tmp_path).read("main")[1]]

    for methods in (("er",), ("er", "acil")):
        small = Recipe("", "", lambda _, methods=methods: cells(*methods), (Numbers(),))  # type: ignore[misc]
        monkeypatch.setitem(recipes.RECIPES, "main", small)
        prepare(tmp_path, ["main"], Scale.smoke, range(len(methods), 3), None)
    assert sorted(planned()) == [("acil", 2), ("er", 2)]
    prepare(tmp_path, ["main"], Scale.mini, range(1), None)
    assert sorted(planned()) == [("acil", 0), ("er", 0)]
    (tmp_path / "recipes" / "main.json").write_text("{}")
    with pytest.raises(InputError, match="can not be read: start the sweep again"):
        planned()
    prepare(tmp_path, ["main"], Scale.mini, range(1), None)
    assert sorted(planned()) == [("acil", 0), ("er", 0)]


def test_a_row_has_at_most_its_seeds_over_all_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = cells("acil", "er")
    small = Recipe("", "", lambda _: [both[0], both[1]._replace(seeds=2)], (Numbers(),))
    monkeypatch.setitem(recipes.RECIPES, "main", small)
    for seeds in (range(1), range(1, 4), range(4)):
        prepare(tmp_path, ["main"], Scale.smoke, seeds, None)
    found = [(entry.row, entry.seed) for entry in SweepFolder(tmp_path).read("main")[1]]
    assert sorted(found) == [*(("acil", seed) for seed in range(4)), ("er", 0), ("er", 1)]


def test_a_recipe_without_the_methods_of_a_call_is_not_planned(tmp_path: Path) -> None:
    prepare(tmp_path, ["delay", "main"], Scale.smoke, range(1), None, methods=["halo", "ncm"])
    prepare(tmp_path, ["delay", "main"], Scale.smoke, range(1), None, methods=["ncm"])
    folder = SweepFolder(tmp_path)
    assert folder.calls("delay") == [Call(methods=("halo",), seeds=(0,))]
    assert folder.calls("main") == [Call(methods=("halo", "ncm"), seeds=(0,))]
    prepare(tmp_path / "other", ["delay", "main"], Scale.smoke, range(1), None, methods=["ncm"])
    assert SweepFolder(tmp_path / "other").recipes == ["main"]


# -- other data sets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "dataset_stats"])
@pytest.mark.parametrize("scale", Scale)
def test_every_recipe_runs_on_a_data_set_that_it_does_not_have(name: str, scale: Scale) -> None:
    basis = basis_for(scale, "folder birds", "folder", 5000, 1000, classes=60)
    grid = RECIPES[name].grid(basis)
    assert {cell.config.dataset for cell in grid} == {"folder"}
    assert all(cell.panel.partition(", ")[0] == "folder birds" for cell in grid)
    assert len({run_name(cell.config) for cell in grid}) == len(grid)


def test_sizes_of_a_data_set_that_a_scale_does_not_have() -> None:
    def fields(scale: Scale, images: int, tests: int) -> dict[str, object]:
        return dict(basis_for(scale, "it", "folder", images, tests, classes=60).datasets["it"])

    assert fields(Scale.mini, 9000, 900) == {"dataset": "folder", "image_size": 96, "samples": 6000, "buffer": 200}
    assert fields(Scale.full, 50_000, 10_000)["eval_every"] == 1568, "that of CIFAR-100"
    assert fields(Scale.full, 500, 100) == {"dataset": "folder", "image_size": 96, "eval_every": 32}
    assert fields(Scale.smoke, 90, 30).keys().isdisjoint({"samples", "test_samples"})
    few = basis_for(Scale.mini, "it", "folder", 9000, 900, classes=4)
    assert few.datasets["it"]["groups"] == 4, "no more groups than classes"


def test_two_folders_of_a_user_are_two_data_sets(tmp_path: Path) -> None:
    def planned(place: Path) -> set[str]:
        jobs = prepare(tmp_path / "out", ["delay"], Scale.smoke, range(1), place, datasets=["folder"])
        return {job.folder.name for job in jobs}

    birds, fish = (labelled(tmp_path / name, 24) for name in ("birds", "fish, 2026"))
    first, second = planned(birds), planned(fish)
    assert len(first) == len(second) == 3
    assert not first & second
    folder = SweepFolder(tmp_path / "out")
    assert {entry.panel for entry in folder.read("delay")[1]} == {"folder birds", "folder fish 2026"}
    assert [call.data for call in folder.calls("delay")] == ["DIR/birds", "DIR/fish, 2026"]
    (tmp_path / "moved").mkdir()
    assert planned(birds.rename(tmp_path / "moved" / "birds")) == first


def test_a_stream_with_an_order_of_its_own_has_no_other_groups(tmp_path: Path) -> None:
    place = labelled(tmp_path / "birds", 24)
    jobs = prepare(tmp_path / "out", ["groups"], Scale.smoke, range(1), place, datasets=["folder"])
    assert {job.config.groups for job in jobs} == {10}
    with pytest.raises(InputError, match="coarse_split: nothing to run, as folder has an order of its own"):
        prepare(tmp_path / "none", ["coarse_split"], Scale.smoke, range(1), place, datasets=["folder"])
    assert not (tmp_path / "none").exists()


def test_a_data_set_from_outside(tmp_path: Path) -> None:
    asked = ["dhocl.data.glyphs:read"]
    jobs = prepare(tmp_path, ["delay"], Scale.smoke, range(1), None, datasets=asked)
    assert {job.config.dataset for job in jobs} == set(asked)
    assert {entry.panel for entry in SweepFolder(tmp_path).read("delay")[1]} == {"read"}
    assert SweepFolder(tmp_path).calls("delay") == [Call(datasets=tuple(asked), seeds=(0,))]


def test_statistics_of_a_data_set_that_the_scale_does_not_have(tmp_path: Path) -> None:
    prepare(tmp_path / "out", ["dataset_stats"], Scale.smoke, range(1), None)
    place = labelled(tmp_path / "birds", 24)
    prepare(tmp_path / "out", ["dataset_stats"], Scale.smoke, range(1), place, datasets=["folder"])
    _, _, found = SweepFolder(tmp_path / "out").read("dataset_stats")
    assert SweepFolder(tmp_path / "out").calls("dataset_stats") == [
        Call(),
        Call(datasets=("folder",), data="DIR/birds"),
    ]
    assert [(fact["name"], fact["train"] > 20) for fact in found] == [("glyphs", True), ("folder birds", True)]


def test_a_folder_of_images_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place, out = labelled(tmp_path / "birds", 96), str(tmp_path / "swept")
    words = ["sweep", "main", "--scale", "mini", "--dataset", "folder", "--data", str(place)]
    words += ["--method", "acil", "--method", "ncm", "--seeds", "1", "--workers", "1", "--out", out]
    code, printed, problem = command(capsys, monkeypatch, *words)
    assert code == 0, problem
    assert "Report: " in printed
    table = (tmp_path / "swept" / "tables" / "main-folder-birds.md").read_text()
    assert "acil" in table
    assert "ncm" in table
    assert "er_ace" not in table
    code, _, problem = command(capsys, monkeypatch, "report", out, "--pages", str(tmp_path / "pages"))
    assert code == 0, problem
    wanted = "dhocl sweep main --scale mini --data DIR/birds --dataset folder --method acil --method ncm --seeds 1"
    for page in ("index.md", "main.md"):
        assert wanted in (tmp_path / "pages" / page).read_text()
    assert str(tmp_path) not in (tmp_path / "pages" / "runs.csv").read_text()


def test_a_method_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = command(capsys, monkeypatch, "sweep", "main", "--method", "era", "--out", str(tmp_path))
    assert code == 2
    assert "--method era: one of acil" in said


@pytest.mark.parametrize(
    ("names", "scale", "told"),
    [
        (["nothing"], Scale.smoke, "no recipe 'nothing': choose one of main"),
        (["main"], Scale.mini, "give its folder as `data`"),
    ],
)
def test_what_is_missing_is_told_before_anything_is_written(
    names: list[str], scale: Scale, told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=told):
        prepare(tmp_path / "out", names, scale, range(1), None)
    assert not (tmp_path / "out").exists()


def test_scale_and_engine_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`scale` huge: one of smoke, mini, full, paper"):
        sweep.sweep(["groups"], tmp_path / "out", "huge")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`engine` slurm: one of local, ray"):
        sweep.sweep(["groups"], tmp_path / "out", engine="slurm")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_imagenet_h_needs_a_backbone_that_never_saw_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhocl.data.check", lambda *_: None)
    asked = (tmp_path / "out", ["imagenet_h"], Scale.paper, range(1), tmp_path)
    with pytest.raises(InputError, match=r"needs one backbone, not trained on ImageNet .* `backbone`"):
        prepare(*asked)
    assert not (tmp_path / "out").exists()
    assert {job.config.backbone for job in prepare(*asked, ["hub:mine"])} == {"hub:mine"}
    with pytest.raises(InputError, match="have their own backbones"):
        prepare(tmp_path / "main", ["main"], Scale.smoke, range(1), None, ["hub:mine"])


def test_a_data_folder_that_lacks_a_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cifar"):
        prepare(tmp_path / "out", ["main"], Scale.mini, range(1), tmp_path)
    assert not (tmp_path / "out").exists()


# -- the engine here -------------------------------------------------------------------------------------------


@given(*(st.integers(0, 9) for _ in range(2)), st.integers(1, 64), st.integers(0, 8))
def test_each_gpu_has_a_worker_before_one_has_two(workers: int, jobs: int, cores: int, gpus: int) -> None:
    found = places(workers, jobs, cores, gpus)
    assert len(found) == max(1, min(workers or gpus or cores, jobs))
    each = Counter(place.device for place in found)
    assert each.keys() <= ({f"cuda:{number}" for number in range(gpus)} if gpus else {"cpu"})
    if gpus:
        assert max(each.values()) - (min(each.values()) if len(each) == gpus else 0) <= 1
    assert all(place.threads >= 1 for place in found)
    assert sum(place.threads for place in found) <= max(cores, len(found))


@pytest.mark.usefixtures("recipe")
def test_workers_compute_where_their_place_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = prepare(tmp_path / "sweep", ["main"], Scale.smoke, range(2), None)
    seen: list[list[Place]] = []
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(local, "run_here", lambda _, places: seen.append(places) or iter(()))
    listen(jobs, workers=0)
    assert [place.device for place in seen[0]] == ["cuda:0", "cuda:1"]

    devices: list[str] = []
    monkeypatch.setattr(local, "prepare", lambda threads: None)
    monkeypatch.setattr(local, "finish", lambda config, folder, report, device: devices.append(device))
    ours, theirs = multiprocessing.Pipe()
    ours.send(jobs[0])
    worker = threading.Thread(target=local.work, args=(theirs, seen[0][1]))
    worker.start()
    assert ours.recv() is None
    ours.close()
    worker.join()
    assert devices == ["cuda:1"]


@pytest.mark.usefixtures("recipe")
def test_processes_make_the_runs_that_one_would_make(tmp_path: Path) -> None:
    jobs = prepare(tmp_path / "sweep", ["main"], Scale.smoke, range(2), None)
    before = dict(os.environ)
    events = listen(jobs)
    assert os.environ == before, "the environment of the workers is theirs alone"
    assert len(jobs) == 4
    assert [event.problem for event in events if isinstance(event, Ended)] == [None] * 4
    assert sum(isinstance(event, Begun) for event in events) == 4
    assert any(isinstance(event, Underway) and 0 < event.samples <= event.total == 240 for event in events)
    for job in jobs:
        for _ in run(job.config, tmp_path / "alone" / job.folder.name):
            pass
        ours = (job.folder / "curve.jsonl").read_bytes()
        assert ours == (tmp_path / "alone" / job.folder.name / "curve.jsonl").read_bytes()
    assert prepare(tmp_path / "sweep", ["main"], Scale.smoke, range(2), None) == [], "finished runs are not run again"


def test_a_run_that_fails_is_recorded_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = cells("er", settings={"lr_backbone": 1e30})
    monkeypatch.setitem(recipes.RECIPES, "main", Recipe("", "", lambda _: broken + cells("acil"), (Numbers(),)))
    events = listen(prepare(tmp_path, ["main"], Scale.smoke, range(1), None), workers=1)
    problems = [event.problem for event in events if isinstance(event, Ended)]
    assert problems[0] is not None
    assert "training diverged" in problems[0]
    assert problems[1] is None
    (failed,) = tmp_path.glob(f"runs/*/{FAILED}")
    assert "Traceback" in failed.read_text()
    page = write_sweep_report(tmp_path).read_text()
    assert "training diverged" in page
    assert len(prepare(tmp_path, ["main"], Scale.smoke, range(1), None)) == 1, "what failed is tried again"


@pytest.mark.usefixtures("recipe")
def test_a_run_of_another_process_is_left_to_it(tmp_path: Path) -> None:
    """Two sweeps in one folder."""
    jobs = prepare(tmp_path, ["main"], Scale.smoke, range(1), None)
    with locked(jobs[0].folder):
        problems = [event.reason for event in listen(jobs, 1) if isinstance(event, Ended)]
    assert "is in use by another process: stop that one first" in problems[0]
    assert problems[1] == ""
    assert not (jobs[0].folder / FAILED).exists()
    assert [job.finished for job in jobs] == [False, True]
    assert [event.problem for event in listen(jobs[:1], 1) if isinstance(event, Ended)] == [None]


def test_a_run_that_another_process_finishes_meanwhile_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finished_meanwhile(*_: object, **__: object) -> None:
        Record(tmp_path / "run").finish({}, {})
        raise InputError("it is finished")

    monkeypatch.setattr(work, "run", finished_meanwhile)
    assert work.finish(RunConfig(**TINY), tmp_path / "run", lambda *_: None) is None
    assert not (tmp_path / "run" / FAILED).exists()


def test_where_a_failure_can_not_be_written_it_is_still_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for place in ("run", "write_atomically"):
        monkeypatch.setattr(work, place, full)
    problem = work.finish(RunConfig(**TINY), tmp_path / "run", lambda *_: None)
    assert problem is not None
    assert "No space left on device" in problem


@pytest.mark.usefixtures("recipe")
def test_a_failure_without_a_message_is_no_defect_of_the_report(tmp_path: Path) -> None:
    job = prepare(tmp_path, ["main"], Scale.smoke, range(1), None)[0]
    job.folder.mkdir(parents=True)
    (job.folder / FAILED).touch()
    assert "no message" in write_sweep_report(tmp_path).read_text()


@pytest.mark.usefixtures("recipe")
def test_a_process_that_dies_is_told_of_and_replaced(tmp_path: Path) -> None:
    jobs = prepare(tmp_path, ["main"], Scale.smoke, range(2), None)
    others = multiprocessing.active_children()  # those that read images stay for as long as Python runs
    ended, killed = [], False
    for event in start(jobs, "local", 1, None):
        if isinstance(event, Underway) and not killed:
            killed = True
            (worker,) = set(multiprocessing.active_children()) - set(others)
            worker.kill()
        if isinstance(event, Ended):
            ended.append(event.problem)
    assert ended == ["its process died with exit code -9", None, None, None]


def test_stopped_at_any_time_and_started_again_is_the_same(tmp_path: Path) -> None:
    """A real command, killed in the midst of its runs; the same command goes on."""
    command = [
        sys.executable,
        "-c",
        "from dhocl.cli import main; main()",
        "sweep",
        "delay",
        "--workers",
        "2",
        "--quiet",
    ]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True)
    process = subprocess.Popen([*command, "--out", str(tmp_path / "stopped")], start_new_session=True)
    deadline = time.monotonic() + 120
    while not curves(tmp_path / "stopped") and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not all(Record(path).finished for path in (tmp_path / "stopped" / "runs").iterdir())
    subprocess.run([*command, "--out", str(tmp_path / "stopped")], check=True)
    assert curves(tmp_path / "stopped") == curves(tmp_path / "whole")
    assert len(curves(tmp_path / "whole")) == 3


# -- the report ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("recipe")
def test_tables_and_figures_are_files(tmp_path: Path) -> None:
    listen(prepare(tmp_path, ["main"], Scale.smoke, range(2), None))
    page = write_sweep_report(tmp_path)
    assert page == tmp_path / "index.html"
    summaries = [
        json.loads((tmp_path / "runs" / entry.run / "summary.json").read_text())
        for entry in SweepFolder(tmp_path).read("main")[1]
        if entry.row == "er"
    ]
    mean = sum(summary["AAUC"] for summary in summaries) / 2
    assert f"{mean:.1f}" in (tmp_path / "tables" / "main-glyphs.md").read_text()
    rows = (tmp_path / "tables" / "main-glyphs.csv").read_text().splitlines()
    assert rows[0] == "row,seed,AAUC,FAUC,MS,FFAcc,open.AAUC"
    assert [row.split(",")[:2] for row in rows[1:]] == [["acil", "0"], ["acil", "1"], ["er", "0"], ["er", "1"]]
    assert float(rows[3].split(",")[2]) == summaries[0]["AAUC"]
    latex = (tmp_path / "tables" / "main-glyphs.tex").read_text()
    assert r"\toprule" in latex
    assert r"\pm" in latex
    for suffix in ("svg", "png"):
        assert (tmp_path / "figures" / f"main-glyphs-fine_accuracy.{suffix}").stat().st_size > 1000
    assert "<script src" not in page.read_text()
    assert all(str(escape(sentence)) in page.read_text() for sentence in POPULATIONS.values())
    assert "Paired differences to the best of the column" in page.read_text()


def test_a_folder_without_a_sweep_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no sweep"):
        write_sweep_report(tmp_path)
