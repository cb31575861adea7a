from __future__ import annotations

import sys
import typing
from pathlib import Path

import numpy as np
import pytest

from dhocl import cli
from dhocl.core.errors import InputError
from dhocl.experiment.config import RunConfig, Scenario
from dhocl.experiment.record import Record
from dhocl.experiment.run import load_dataset, make_plan, run
from dhocl.stream import FIXED, GROUPED

SMALL = {
    "method": "acil",
    "backbone": "tiny",
    "image_size": 32,
    "samples": 400,
    "test_samples": 200,
    "batch": 16,
    "replay_batch": 8,
    "buffer": 40,
    "eval_every": 96,
}
OF_EARLIER_WORK = ("A_AUC", "A_last", "F_last", "pw_js")


def config(scenario: str, **more: object) -> RunConfig:
    return RunConfig(**SMALL | {"scenario": scenario} | ({"groups": 5} if scenario in GROUPED else {}) | more)


def finish(chosen: RunConfig, folder: Path, resume: bool = False) -> Record:
    for _ in run(chosen, folder, resume):
        pass
    return Record(folder)


def stop(chosen: RunConfig, folder: Path, step: int) -> None:
    for progress in run(chosen, folder):
        if progress.step == step:
            return


@pytest.mark.parametrize("scenario", [*GROUPED, *FIXED])
def test_a_scenario_is_judged_at_group_ends_and_summed_up(scenario: str, tmp_path: Path) -> None:
    chosen = config(scenario)
    table, ends = make_plan(chosen, load_dataset(chosen))
    record = finish(chosen, tmp_path / "run")
    curve, summary = record.curve(), record.summary()

    at = {line["step"] for line in curve if "class_accuracy" in line}
    assert at == {int(np.ceil(end / 16)) for end in ends}
    periodic = [line for line in curve if line["periodic"]]
    steps = int(np.ceil(len(table) / 16))
    assert [line["step"] for line in periodic] == sorted({*range(6, steps + 1, 6), steps})

    level = "2"  # the finest; its classes by name, a table of group ends and classes as i-Blurry has it
    names = [str(label) for label in record.taxonomy() if label.level == 2]
    rows = [line["class_accuracy"].get(level, []) for line in curve if "class_accuracy" in line]
    accuracies = np.array([[value or 0 for value in row] + [0] * (len(names) - len(row)) for row in rows])
    best = accuracies[:-1].max(0)
    lost = (best - accuracies[-1])[best > 0]
    assert summary["F_last"][level] == (pytest.approx(lost.mean()) if len(lost) else None)
    scored = [line["level_accuracy"][level] for line in periodic if level in line["level_accuracy"]]
    assert summary["A_AUC"][level] == pytest.approx(np.mean(scored))
    assert summary["A_last"] == curve[-1]["level_accuracy"]
    assert summary["pw_js"]["last"] == curve[-1]["pw_js"]
    assert summary["pw_js"]["mean"] == pytest.approx(np.mean([line["pw_js"] for line in periodic]))
    assert {f"path.{name}" for name in OF_EARLIER_WORK} <= summary.keys()


@pytest.mark.parametrize(("scenario", "method"), [("iblurry", "halo"), ("hle_multi", "er")])
def test_stopped_and_resumed_is_the_same(scenario: str, method: str, tmp_path: Path) -> None:
    """Before the first and at a later group's end, with methods that replay; i-Blurry never names coarser levels."""
    chosen = config(scenario, method=method)
    whole = finish(chosen, tmp_path / "whole")
    for step in (3, 15):
        stop(chosen, tmp_path / str(step), step)
        again = finish(chosen, tmp_path / str(step), resume=True)
        assert (again.folder / "curve.jsonl").read_bytes() == (whole.folder / "curve.jsonl").read_bytes()
        for name in OF_EARLIER_WORK:
            assert again.summary()[name] == whole.summary()[name]


def test_our_own_stream_is_judged_as_ever(tmp_path: Path) -> None:
    record = finish(config("dhocl"), tmp_path / "run")
    assert [line["step"] for line in record.curve()] == [6, 12, 18, 24, 25]
    for line in record.curve():
        assert not {"periodic", "pw_js", "class_accuracy"} & {*line, *line["path"]}
    assert not set(OF_EARLIER_WORK) & record.summary().keys()


@pytest.mark.parametrize(
    ("scenario", "flag", "value"),
    [
        *((name, flag, value) for name in GROUPED for flag, value in (("overlap", 0.5), ("passes", 2))),
        *((name, flag, value) for name in FIXED for flag, value in (("groups", 3), ("split_level", 1))),
    ],
)
def test_options_without_a_place_are_refused(scenario: str, flag: str, value: float, tmp_path: Path) -> None:
    message = f"`scenario` {scenario} makes its own groups: `{flag}` does not apply, leave it out"
    with pytest.raises(InputError, match=message):
        finish(config(scenario, **{flag: value}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_images_in_an_order_of_their_own_take_no_scenario(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("a", "b"):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.png")
    (tmp_path / "tree.tsv").write_text("child\tlevel\tparent\nf\tfamily\t\nr\tspecies\tf\n")
    (tmp_path / "labels.csv").write_text("path,label,level\na.png,r,species\nb.png,f,family\n")
    chosen = RunConfig("acil", "folder", str(tmp_path), scenario="iirc", image_size=8, test_samples=1)
    with pytest.raises(InputError, match="is a stream with an order of its own: `scenario` does not apply"):
        make_plan(chosen, load_dataset(chosen))


def test_the_names_are_the_same_everywhere() -> None:
    assert set(typing.get_args(Scenario)) == {"dhocl", *GROUPED, *FIXED}
    with pytest.raises(InputError, match="`scenario` moon: one of dhocl, iblurry"):
        RunConfig(scenario="moon")  # type: ignore[arg-type]


def test_a_configuration_from_before_there_were_scenarios_is_ours() -> None:
    stored = RunConfig().to_json()
    del stored["scenario"]
    assert RunConfig.from_json(stored) == RunConfig()


def test_the_command_takes_a_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    out = ["--scenario", "hle_dual", "--groups", "5", "--quiet", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["dhocl", "run", *words, *out])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    assert Record(tmp_path / "run").config() == config("hle_dual")
    assert Record(tmp_path / "run").curve()[-1]["samples"] == 800
    assert (tmp_path / "run" / "report.html").exists()
