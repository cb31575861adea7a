from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dhocl import checkpoint
from dhocl.cli import main
from dhocl.config import RunConfig
from dhocl.errors import InputError
from dhocl.knowledge import Curator
from dhocl.methods import METHODS
from dhocl.record import Record
from dhocl.run import run
from dhocl.stream import Stream

SMALL = {
    "backbone": "tiny",
    "image_size": 32,
    "samples": 400,
    "test_samples": 200,
    "groups": 4,
    "batch": 16,
    "replay_batch": 8,
    "buffer": 40,
    "eval_every": 64,
}


def flags(**more: object) -> list[str]:
    chosen = SMALL | more
    return [text for name, value in chosen.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def dhocl(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from dhocl.cli import main; main()", *arguments], capture_output=True, text=True
    )


def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[object, str, str]:
    """The command in this process: exit code, output, errors."""
    monkeypatch.setattr(sys, "argv", ["dhocl", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code, *capsys.readouterr()


def finish(config: RunConfig, folder: Path, resume: bool = False) -> Record:
    for _ in run(config, folder, resume):
        pass
    return Record(folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return finish(RunConfig(**SMALL), tmp_path_factory.mktemp("whole") / "run")


def test_a_run_leaves_its_files(finished: Record) -> None:
    summary = finished.summary()
    for name in (
        "AAUC",
        "FAUC",
        "MS",
        "FFAcc",
        "FAAcc",
        "ms_mistakes",
        "level_accuracy",
        "samples_per_second",
        "cost_vs_er",
    ):
        assert name in summary
    for name in ("seconds_training", "seconds_evaluating", "path.AAUC", "path.FAUC", "path.MS"):
        assert name in summary
    curve = finished.curve()
    assert [line["samples"] for line in curve] == [64, 128, 192, 256, 320, 384, 400]
    described = finished.describe()
    assert described["config"]["method"] == "halo"
    assert described["levels"] == ["script", "base", "character"]
    assert len(described["stream"]) == 16
    tree = finished.taxonomy()
    assert tree.widths == {int(level): width for level, width in curve[-1]["classes"].items()}
    assert set(finished.matrices()) == {"prototypes.0", "prototypes.1", "prototypes.2"}


def test_summary_follows_from_the_curve(finished: Record) -> None:
    curve, summary = finished.curve(), finished.summary()
    mean = [sum(line["level_accuracy"].values()) / len(line["level_accuracy"]) for line in curve]
    assert summary["AAUC"] == pytest.approx(sum(mean) / len(mean))
    assert summary["FAUC"] == pytest.approx(sum(line["level_accuracy"]["2"] for line in curve) / len(curve))
    assert summary["FFAcc"] == curve[-1]["level_accuracy"]["2"]
    for line in curve:
        for scores in (line, line["path"]):
            wrong = 1 - scores["fine_accuracy"] / 100
            assert scores["ms"] == pytest.approx(wrong * (scores["ms_mistakes"] or 0))


def test_config_runs_again_to_the_same_end(finished: Record, tmp_path: Path) -> None:
    again = finish(finished.config(), tmp_path / "again")
    assert (again.folder / "curve.jsonl").read_bytes() == (finished.folder / "curve.jsonl").read_bytes()
    assert (again.folder / "taxonomy.jsonl").read_bytes() == (finished.folder / "taxonomy.jsonl").read_bytes()
    assert again.describe()["stream"] == finished.describe()["stream"]


def test_asking_the_truth_again_would_change_nothing(
    finished: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhocl.run.Curator", partial(Curator, ask_again=True))
    again = finish(RunConfig(**SMALL), tmp_path / "again")
    for name in ("curve.jsonl", "taxonomy.jsonl"):
        assert (again.folder / name).read_bytes() == (finished.folder / name).read_bytes()


def test_another_seed_is_another_stream(finished: Record, tmp_path: Path) -> None:
    other = finish(RunConfig(**SMALL | {"seed": 1, "method": "acil"}), tmp_path / "other")
    same = finish(RunConfig(**SMALL | {"method": "acil"}), tmp_path / "same")
    assert other.describe()["stream"] != finished.describe()["stream"]
    assert same.describe()["stream"] == finished.describe()["stream"]


def test_stopped_anywhere_and_resumed_is_the_same(finished: Record, tmp_path: Path) -> None:
    for stop in (1, 5, 13):
        folder = tmp_path / str(stop)
        for progress in run(RunConfig(**SMALL), folder):
            if progress.step == stop:
                break
        assert not Record(folder).finished
        again = finish(RunConfig(**SMALL), folder, resume=True)
        assert (again.folder / "curve.jsonl").read_bytes() == (finished.folder / "curve.jsonl").read_bytes()


@pytest.mark.parametrize("buffer", [0, 20, 40])
def test_cost_is_counted_in_steps_of_replay(buffer: int, tmp_path: Path) -> None:
    """Whoever replays costs 1 by definition; frozen features cost the forwards of the stream."""
    sizes = SMALL | {"buffer": buffer}
    assert finish(RunConfig("er", **sizes), tmp_path / "er").summary()["cost_vs_er"] == 1
    replayed = sum(min(8, buffer, 16 * step) for step in range(25))
    frozen = finish(RunConfig("acil", **sizes), tmp_path / "acil").summary()["cost_vs_er"]
    assert frozen == pytest.approx(400 / (3 * (400 + replayed)))


def test_cost_is_carried_over_a_resume(tmp_path: Path) -> None:
    config = RunConfig("lwf", **SMALL, settings={"every": 64})
    whole = finish(config, tmp_path / "whole").summary()["cost_vs_er"]
    for progress in run(config, tmp_path / "stopped"):
        if progress.step == 13:
            break
    assert finish(config, tmp_path / "stopped", resume=True).summary()["cost_vs_er"] == whole
    assert 1 < whole < 4 / 3


def test_killed_and_resumed_is_the_same(tmp_path: Path) -> None:
    """A real process, SIGKILL at several moments, `--resume`: the same curve bit for bit."""
    more = {"method": "halo", "delay": 3, "vacant": 0.1, "noise": 0.1}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert dhocl("run", *flags(**more), "--out", str(whole), "--quiet").returncode == 0
    command = [
        sys.executable,
        "-c",
        "from dhocl.cli import main; main()",
        "run",
        "--out",
        str(killed),
        "--quiet",
    ]
    kills = 0
    for wait in (0.0, 0.3, 0.9):
        resume = ["--resume"] if (killed / "config.json").exists() else flags(**more)
        process = subprocess.Popen([*command, *resume])
        seen = _checkpoints(killed)
        deadline = time.monotonic() + 120
        while process.poll() is None and _checkpoints(killed) <= seen and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(wait)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    if not Record(killed).finished:
        assert dhocl("run", "--out", str(killed), "--quiet", "--resume").returncode == 0
    assert kills >= 1
    for name in ("curve.jsonl", "taxonomy.jsonl", "matrices.safetensors"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name


def _checkpoints(folder: Path) -> int:
    """The serial number of the newest checkpoint."""
    return max((int(path.name[:9]) for path in folder.glob("checkpoints/[0-9]*")), default=0)


def test_killed_just_before_the_end_and_resumed(
    finished: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last checkpoint is written, the summary is not: there is nothing left to learn, only to tell."""
    shutil.copytree(finished.folder, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    code, output, _ = command(capsys, monkeypatch, "run", "--resume", "--out", str(tmp_path / "run"))
    assert code == 0
    assert "AAUC" in output
    again = Record(tmp_path / "run")
    assert (again.folder / "curve.jsonl").read_bytes() == (finished.folder / "curve.jsonl").read_bytes()
    assert again.summary() == finished.summary()


def test_a_damaged_checkpoint_is_passed_over(finished: Record, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for progress in run(RunConfig(**SMALL), folder):
        if progress.step == 13:
            break
    newest = max(folder.glob("checkpoints/*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    again = finish(RunConfig(**SMALL), folder, resume=True)
    assert (again.folder / "curve.jsonl").read_bytes() == (finished.folder / "curve.jsonl").read_bytes()


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(checkpoint, "FORMAT", "1")
        checkpoint.save(tmp_path, {"step": 1})
    with pytest.raises(InputError, match="another version"):
        checkpoint.load_newest(tmp_path)


def test_checkpoints_hold_what_they_were_given(tmp_path: Path) -> None:
    import torch

    state = {
        "a": {"x": torch.arange(5), "n": 3, "empty": {}},
        "text": "é",
        "list": [1, [2, None]],
        "big": 2**100,
    }
    checkpoint.save(tmp_path, state)
    loaded = checkpoint.load_newest(tmp_path)
    assert torch.equal(loaded["a"].pop("x"), torch.arange(5))
    state["a"].pop("x")
    assert loaded == state
    (tmp_path / ".000000009-ab.safetensors.partial").write_bytes(b"half")  # a crash while writing
    for step in (9, 8, 3):
        checkpoint.save(tmp_path, {"step": step})
        assert checkpoint.load_newest(tmp_path) == {"step": step}, "the newest is the one written last"
    assert len(list(tmp_path.iterdir())) == checkpoint.KEEP


def test_damaged_checkpoints_do_not_stand_in_the_way_of_new_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, {"step": step}).write_bytes(b"")
    assert checkpoint.load_newest(tmp_path) is None
    assert capsys.readouterr().err.count("was damaged and is removed") == 2
    checkpoint.save(tmp_path, {"step": 3})
    assert checkpoint.load_newest(tmp_path) == {"step": 3}


class Blindfold:
    """Fails when it is asked about, or tells of, a class that no label has named yet."""

    def __init__(self, source: object) -> None:
        self.source = source

    def query(self, label: object, known: object) -> object:
        assert label in known
        links = self.source.query(label, known)
        assert all(end in known for link in links for end in link)
        return links


def test_the_learner_never_meets_the_true_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All it gets is the taxonomy known so far, and that holds only classes that have arrived."""
    from dhocl import run as module
    from dhocl.methods.er import ER

    oracle = module.make_source
    monkeypatch.setattr(module, "make_source", lambda *given: Blindfold(oracle(*given)))
    arrived: set[int] = set()
    learn = ER.learn

    def watched(self: ER, batch: object, taxonomy: object) -> dict[str, float]:
        arrived.update(batch.y.tolist())
        assert set(range(len(taxonomy))) == arrived
        return learn(self, batch, taxonomy)

    monkeypatch.setattr(ER, "learn", watched)
    record = finish(RunConfig(**SMALL | {"method": "er"}), tmp_path / "run")
    assert record.finished


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "magic"], "there is no method 'magic': choose one of halo, er"),
        (["--dataset", "moon"], "moon"),
        (["--backbone", "spine"], "spine"),
        (["--groups", "5000"], "--groups 5000"),
        (["--overlap", "2"], "--overlap"),
        (["--samples", "0"], "--samples 0"),
        (["--samples", "100000000"], "100000000"),
        (["--batch", "0"], "--batch 0"),
        (["--delay", "-1"], "--delay"),
        (["--vacant", "0.8", "--noise", "0.8"], "--vacant"),
        (["--split-level", "7"], "--split-level 7"),
        (["--set", "colour=red"], "halo has no setting 'colour'"),
        (["--set", "hpr=perhaps"], "--set hpr=perhaps: expected one of true, false"),
        (["--set", "gamma=0"], "--set gamma=0.0: expected a number above 0"),
        (["--set", "cache_every=0"], "--set cache_every=0: expected a number above 0"),
        (["--set", "lr_heads=nan"], "--set lr_heads=nan: expected a number from 0"),
        (["--set", "lambda=-1"], "--set lambda=-1.0: expected a number from 0"),
        (["--delay", "1.5"], "--delay 1.5"),
        (["--vacant", "nan"], "--vacant nan"),
        (["--set", "lambda=x"], "--set lambda=x: expected a value of type float"),
        (["--set", "hpr"], "--set hpr: write it as key=value"),
        (["--dataset", "cifar100"], "--data"),
        (["--dataset", "cifar100", "--data", "nowhere"], "nowhere"),
        (["--resume"], "nothing to resume"),
        (["--seed", "x"], "seed"),
    ],
)
def test_mistakes_get_one_line_and_leave_nothing(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = {name: value for name, value in SMALL.items() if f"--{name.replace('_', '-')}" not in arguments}
    given = [text for name, value in chosen.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    given = [] if "--resume" in arguments else given
    code, _, errors = command(capsys, monkeypatch, "run", *given, *arguments, "--out", str(tmp_path / "run"), "--quiet")
    assert code == 2
    assert message in errors
    assert len(errors.strip().splitlines()) == 1 or message == "seed"  # the parser frames its own complaints
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_overwritten(finished: Record) -> None:
    with pytest.raises(InputError, match="holds a run already"):
        finish(RunConfig(**SMALL), finished.folder)
    with pytest.raises(InputError, match="is finished"):
        finish(RunConfig(**SMALL), finished.folder, resume=True)


def test_a_run_is_not_resumed_with_other_settings_or_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig(**SMALL | {"method": "acil"})
    for progress in run(config, tmp_path / "run"):
        if progress.step == 5:
            break
    with pytest.raises(InputError, match="was started with other settings"):
        finish(dataclasses.replace(config, delay=3), tmp_path / "run", resume=True)
    monkeypatch.setattr(Stream, "digest", lambda self: "another")
    with pytest.raises(InputError, match="the data set has changed"):
        finish(config, tmp_path / "run", resume=True)


def test_a_run_that_failed_before_its_first_evaluation_can_be_started_again(tmp_path: Path) -> None:
    for _ in run(RunConfig(**SMALL | {"method": "acil"}), tmp_path / "run"):
        break
    assert finish(RunConfig(**SMALL | {"method": "acil", "seed": 1}), tmp_path / "run").config().seed == 1


def test_what_is_configured_reaches_those_it_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dhocl import run as module

    seen: dict[str, tuple[object, ...]] = {}

    def spy(name: str, real: type) -> None:
        def spied(*given: object, **more: object) -> object:
            seen[name] = given
            return real(*given, **more)

        monkeypatch.setattr(module, name, spied)

    for name in ("Corrupted", "Curator", "PlanConfig"):
        spy(name, getattr(module, name))
    more = {"method": "acil", "delay": 3, "vacant": 0.1, "noise": 0.2, "overlap": 0.3, "passes": 2, "split_level": 1}
    finish(RunConfig(**SMALL | more), tmp_path / "run")
    assert seen["Corrupted"][1:] == (0.1, 0.2, 0)
    assert seen["Curator"][1] == 3
    assert seen["PlanConfig"] == (4, 0.3, 1, 2)


def test_features_of_the_test_images_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dhocl.network import FrozenFeatures

    images = 0
    call = FrozenFeatures.__call__

    def counted(self: FrozenFeatures, pixels: object) -> object:
        nonlocal images
        images += len(pixels)
        return call(self, pixels)

    monkeypatch.setattr(FrozenFeatures, "__call__", counted)
    finish(RunConfig(**SMALL), tmp_path / "run")
    assert images == SMALL["samples"] + SMALL["test_samples"]


def test_output_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = dhocl("run", *flags(), "--out", str(blocked / "run"), "--quiet")
    assert result.returncode == 2
    assert "choose another --out" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_told_and_what_was_there_stays(
    small_disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, errors = command(capsys, monkeypatch, "run", *flags(), "--out", str(small_disk / "run"), "--quiet")
    assert code == 2
    assert "No space left on device; free some room or choose another --out" in errors
    assert len(errors.strip().splitlines()) == 1
    assert not list(small_disk.rglob("*.partial"))
    record = Record(small_disk / "run")
    assert not record.finished
    assert len(record.curve()) == 1  # its checkpoint was what did not fit


def test_resume_refuses_other_settings(tmp_path: Path) -> None:
    for progress in run(RunConfig(**SMALL | {"method": "acil"}), tmp_path / "run"):
        if progress.step == 5:
            break
    result = dhocl("run", "--resume", "--out", str(tmp_path / "run"), "--seed", "3", "--quiet")
    assert result.returncode == 2
    assert "the run was started with --seed 0" in result.stderr
    assert dhocl("run", "--resume", "--out", str(tmp_path / "run"), "--seed", "0", "--quiet").returncode == 0


@pytest.mark.parametrize("kind", ["methods", "datasets", "backbones"])
def test_what_can_be_chosen_is_listed(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output, _ = command(capsys, monkeypatch, "list", kind)
    assert code == 0
    for name in {"methods": ("halo", "er", "acil"), "datasets": ("glyphs", "folder"), "backbones": ("tiny",)}[kind]:
        assert name in output


def test_methods_are_listed_on_a_line_each(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, output, _ = command(capsys, monkeypatch, "list", "methods")
    lines = output.splitlines()[1:]
    assert len(lines) == len(METHODS) == 20
    for line, (name, method) in zip(lines, METHODS.items(), strict=True):
        assert line.split()[0] == name
        assert method.summary in line
        assert method.origin in line


def test_the_curve_is_json_lines_without_times(finished: Record) -> None:
    for line in (finished.folder / "curve.jsonl").read_text().splitlines():
        assert "seconds" not in json.loads(line)
