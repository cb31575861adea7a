"""What a sweep plans in its folder, and what it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dhocl.core.errors import InputError
from dhocl.experiment import recipes, sweep
from dhocl.experiment.config import RunConfig
from dhocl.experiment.recipes import RECIPES, Numbers, Recipe, Scale, basis_for
from dhocl.experiment.sweep import (
    Call,
    Ended,
    SweepFolder,
    portable,
    prepare,
)
from dhocl.experiment.sweep.naming import run_name
from dhocl.report import write_sweep_report
from tests.helpers.albums import labelled
from tests.helpers.small_runs import command
from tests.helpers.sweeps import TINY, cells


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
