from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dhocl.core.errors import InputError
from dhocl.experiment.config import RunConfig
from dhocl.experiment.logs import flattened, logged
from dhocl.experiment.record import Record
from dhocl.experiment.run import run

CONFIG = RunConfig(
    "acil", backbone="tiny", image_size=32, samples=240, test_samples=220, groups=2, batch=16, eval_every=80
)


def finish(folder: Path, kind: str, stop: int = 0) -> Record:
    record = Record(folder)
    for now in logged(run(CONFIG, folder, resume=bool(record.curve())), record, kind):
        if now.step == stop:
            break
    return record


def test_tensorboard_tells_what_the_curve_tells_also_after_a_resume(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    finish(tmp_path / "run", "tensorboard", stop=7)
    record = finish(tmp_path / "run", "tensorboard")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    curve = record.curve()
    for name, value in flattened(curve[-1]).items():
        told = events.Scalars(name)
        assert told[-1].step == 240
        assert told[-1].value == pytest.approx(value, rel=1e-5)
    fine = events.Scalars("accuracy")
    assert [event.step for event in fine] == [scores["samples"] for scores in curve]
    assert [event.value for event in fine] == pytest.approx([scores["accuracy"] for scores in curve], rel=1e-5)


def test_wandb_keeps_the_curve_where_there_is_no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    record = finish(tmp_path / "run", "wandb")
    wandb.teardown()  # as when the process ends: only this waits until the other process has written its file
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    found = file.read_bytes()
    for name in flattened(record.curve()[-1]):
        assert name.encode() in found


@pytest.mark.parametrize(("kind", "package"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")])
def test_a_package_that_is_not_there_is_named(
    kind: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"pip install 'dhocl\[{kind}\]'"):
        finish(tmp_path / "run", kind)
