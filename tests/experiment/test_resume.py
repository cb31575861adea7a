"""Runs that were stopped, killed or damaged go on to the same end."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from dhocl.core import checkpoint
from dhocl.core.errors import InputError
from dhocl.experiment.config import RunConfig
from dhocl.experiment.record import Record
from dhocl.experiment.run import nbytes, run, run_to_end
from dhocl.experiment.sweep import Job
from dhocl.stream import Stream
from tests.helpers.small_runs import FINISHED, SMALL, command, dhocl, finish, flags
from tests.methods.test_methods import DEFAULTS


def test_stopped_anywhere_and_resumed_is_the_same(finished: Record, tmp_path: Path) -> None:
    for stop in (1, 5, 13):
        folder = tmp_path / str(stop)
        for progress in run(RunConfig(**FINISHED), folder):
            if progress.step == stop:
                break
        assert not Record(folder).finished
        again = finish(RunConfig(**FINISHED), folder, resume=True)
        for name in (
            "curve.jsonl",
            "mistakes.json",
            *(path.name for path in finished.folder.glob("matrices*.safetensors")),
        ):
            assert (again.folder / name).read_bytes() == (finished.folder / name).read_bytes(), name


def test_cost_is_carried_over_a_resume(tmp_path: Path) -> None:
    config = RunConfig("lwf", **SMALL, settings={"every": 64})
    whole = finish(config, tmp_path / "whole").summary()["cost_vs_er"]
    for progress in run(config, tmp_path / "stopped"):
        if progress.step == 13:
            break
    assert finish(config, tmp_path / "stopped", resume=True).summary()["cost_vs_er"] == whole
    assert 1 < whole < 4 / 3


def test_the_largest_state_is_carried_over_a_resume(tmp_path: Path) -> None:
    """It is that of step 12, the last evaluation before RM empties its store. The run stops in the step after."""
    config = RunConfig("rm", **SMALL | {"samples": 256}, settings={"every": 208, "memory_epochs": 0})
    whole = finish(config, tmp_path / "whole").summary()["state_mb"]
    for progress in run(config, tmp_path / "stopped"):
        if progress.step == 13:
            break
    assert finish(config, tmp_path / "stopped", resume=True).summary()["state_mb"] == whole
    state = checkpoint.load_newest(tmp_path / "whole" / "checkpoints")
    assert state is not None
    assert whole * 1e6 > 1.1 * nbytes(state["model"]["learner"])


def test_a_checkpoint_without_the_largest_state_is_measured(finished: Record, tmp_path: Path) -> None:
    """As an earlier version wrote it, just before the end."""
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    (folder / "summary.json").unlink()
    state = checkpoint.load_newest(folder / "checkpoints")
    assert state is not None
    del state["run"]["spent"]["state"]
    checkpoint.save(folder / "checkpoints", state)
    again = finish(RunConfig(**FINISHED), folder, resume=True)
    assert again.summary()["state_mb"] == nbytes(state["model"]["learner"]) / 1e6


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
    for name in (
        "curve.jsonl",
        "taxonomy.jsonl",
        "mistakes.json",
        *(path.name for path in whole.glob("matr*.safetensors")),
    ):
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
    for progress in run(RunConfig(**FINISHED), folder):
        if progress.step == 13:
            break
    newest = max(folder.glob("checkpoints/*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    again = finish(RunConfig(**FINISHED), folder, resume=True)
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
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert checkpoint.load_newest(tmp_path) is None, "there never was one"
    for step in (1, 2):
        checkpoint.save(tmp_path, {"step": step}).write_bytes(b"")
    for _ in range(2):
        with pytest.raises(InputError, match="has no intact checkpoint"):
            checkpoint.load_newest(tmp_path)
    assert len(caplog.records) == 2
    assert len(list(tmp_path.glob("*.damaged"))) == 2
    checkpoint.save(tmp_path, {"step": 3})
    assert checkpoint.load_newest(tmp_path) == {"step": 3}


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


def test_a_run_is_not_resumed_with_other_defaults(tmp_path: Path) -> None:
    """As after an upgrade. Settings that one of the versions does not have are not compared."""
    config = RunConfig(**SMALL | {"method": "acil", "settings": {"analytic_tau": 0.5}})
    for progress in run(config, tmp_path / "run"):
        if progress.step == 5:
            break
    record = Record(tmp_path / "run")
    described = record.describe()
    assert described["settings"] == DEFAULTS["acil"] | {"analytic_tau": 0.5}

    def started_with(settings: dict[str, object]) -> None:
        (record.folder / "config.json").write_text(json.dumps(described | {"settings": settings}))

    started_with(described["settings"] | {"gamma": 7.0})
    with pytest.raises(InputError, match=r"was started with gamma=7.0, and the default is 0.3 now"):
        finish(config, record.folder, resume=True)
    started_with({"gamma": 0.3, "gone": 1})
    assert finish(config, record.folder, resume=True).finished
    for reuse in (lambda: run_to_end(config, record.folder), lambda: Job(config, record.folder).finished):
        started_with({"gamma": 7.0})
        with pytest.raises(InputError, match=r"gamma=7\.0"):
            reuse()
        (record.folder / "config.json").write_text(json.dumps({**described, "settings": None}))
        with pytest.raises(InputError, match="by an earlier version"):
            reuse()


def test_a_run_that_failed_before_its_first_evaluation_can_be_started_again(tmp_path: Path) -> None:
    for _ in run(RunConfig(**SMALL | {"method": "acil"}), tmp_path / "run"):
        break
    assert finish(RunConfig(**SMALL | {"method": "acil", "seed": 1}), tmp_path / "run").config().seed == 1


def test_resume_refuses_other_settings(tmp_path: Path) -> None:
    for progress in run(RunConfig(**SMALL | {"method": "acil"}), tmp_path / "run"):
        if progress.step == 5:
            break
    result = dhocl("run", "--resume", "--out", str(tmp_path / "run"), "--seed", "3", "--quiet")
    assert result.returncode == 2
    assert "the run was started with --seed 0" in result.stderr
    assert dhocl("run", "--resume", "--out", str(tmp_path / "run"), "--seed", "0", "--quiet").returncode == 0


def test_resuming_leaves_the_number_of_threads_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The command sets it; a library call only says that the last bits may differ."""
    config = RunConfig(**SMALL | {"method": "acil"})
    for progress in run(config, tmp_path / "run"):
        if progress.scores:
            break
    described = json.loads((tmp_path / "run" / "config.json").read_text())
    described["threads"] += 5
    (tmp_path / "run" / "config.json").write_text(json.dumps(described))
    before = torch.get_num_threads()
    result = run_to_end(config, tmp_path / "run")
    assert torch.get_num_threads() == before
    assert [record.message for record in caplog.records] == [
        f"started with {before + 5} threads: the last bits of results may differ"
    ]
    assert result.curve == Record(tmp_path / "run").curve()
    assert run_to_end(config, tmp_path / "run") == result, "a finished run is read"
    with pytest.raises(InputError, match="is finished"):
        run_to_end(RunConfig(**SMALL | {"method": "er"}), tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"[3]"),
        ("config.json", b"{}"),
        ("config.json", b"\xff"),
        ("summary.json", b"{"),
        ("curve.jsonl", b"{}\n{"),
        ("curve.jsonl", b"3"),
        ("taxonomy.jsonl", b"{}"),
        ("taxonomy.jsonl", b"\xff\xfe"),
        ("matrices.safetensors", b"none"),
    ],
)
def test_damaged_files_of_a_run_are_told_in_a_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    record = Record(tmp_path)
    read = {"config": record.config, "summary": record.summary, "curve": record.curve}
    read |= {"taxonomy": record.taxonomy, "matrices": record.matrices}
    with pytest.raises(InputError, match=f"{name} is damaged or of another version") as found:
        read[name.partition(".")[0]]()
    assert "\n" not in str(found.value)


def test_a_checkpoint_that_can_not_be_written_is_an_os_error_and_leaves_nothing(tmp_path: Path) -> None:
    import torch

    with pytest.raises(OSError, match="No such file"):
        checkpoint.save(tmp_path / "moved", {"x": torch.ones(3)}, make_folder=False)
    assert not list(tmp_path.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # like a full disk: Python ignores SIGXFSZ
    try:
        with pytest.raises(OSError, match=r"too large|File size"):
            checkpoint.save(tmp_path, {"x": torch.ones(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
