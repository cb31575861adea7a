"""Runs small enough for a test, and the command that makes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dhocl.cli import main
from dhocl.experiment.config import RunConfig
from dhocl.experiment.record import Record
from dhocl.experiment.run import run

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
FINISHED = SMALL | {"method": "halo"}  # of the fixture `finished`


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
