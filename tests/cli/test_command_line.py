from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dhocl.core.errors import InputError
from dhocl.experiment.config import RunConfig
from dhocl.experiment.record import Record
from dhocl.methods import METHODS
from tests.helpers.small_runs import SMALL, command, dhocl, finish, flags


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "magic"], "there is no method 'magic': choose one of amber, amber_plus, halo"),
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
        (["--set", "colour=red"], "amber has no setting 'colour'"),
        (["--set", "doubt=perhaps"], "--set doubt=perhaps: expected one of true, false"),
        (["--set", "gamma=0"], "--set gamma=0.0: expected a number above 0"),
        (["--set", "refresh=0"], "--set refresh=0: expected a number above 0"),
        (["--set", "stages=nan"], "--set stages=nan: expected a number from 0"),
        (["--method", "halo", "--set", "lambda=-1"], "--set lambda=-1.0: expected a number from 0"),
        (["--delay", "1.5"], "--delay 1.5"),
        (["--vacant", "nan"], "--vacant nan"),
        (["--method", "halo", "--set", "lambda=x"], "--set lambda=x: expected a value of type float"),
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
    with pytest.raises(InputError, match="has a run already"):
        finish(RunConfig(**SMALL), finished.folder)
    with pytest.raises(InputError, match="is finished"):
        finish(RunConfig(**SMALL), finished.folder, resume=True)


def test_output_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = dhocl("run", *flags(), "--out", str(blocked / "run"), "--quiet")
    assert result.returncode == 2
    assert "choose another folder" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "error", [MemoryError("12 GB"), RuntimeError("not enough memory: you tried to allocate 12 GB")]
)
def test_a_lack_of_memory_is_one_line(
    error: Exception, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code 1: it is no mistake of the user's, and another attempt may succeed."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("dhocl.service.service.ServedModel.load", fails)
    given = [
        "--model",
        str(tmp_path / "m"),
        "--levels",
        "a,b",
        "--backbone",
        "tiny",
        "--image-size",
        "32",
        "--port",
        "0",
    ]
    code, _, errors = command(capsys, monkeypatch, "serve", *given)
    assert code == 1
    assert errors.startswith("dhocl: memory is short")
    assert "12 GB" in errors
    assert len(errors.strip().splitlines()) == 1


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
    assert "No space left on device; free disk space or choose another --out" in errors
    assert len(errors.strip().splitlines()) == 1
    assert not list(small_disk.rglob("*.partial"))
    record = Record(small_disk / "run")
    assert not record.finished
    assert len(record.curve()) == 1  # its checkpoint was what did not fit


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
    assert len(lines) == len(METHODS)
    for line, (name, method) in zip(lines, METHODS.items(), strict=True):
        assert line.split()[0] == name
        assert method.summary in line
        assert method.origin in line
