"""--device and --precision reach the model of each command. A device that is not there is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dhocl import Classifier
from dhocl.checks import exam
from tests.helpers.albums import labelled
from tests.helpers.small_runs import command, dhocl, flags

COMMANDS = {
    "run": lambda here: ["run", *flags(), "--out", str(here / "run")],
    "learn": lambda here: ["learn", str(here / "new"), "--data", str(here / "photos"), "--backbone", "tiny"],
    "learn more": lambda here: ["learn", str(here / "model"), "--data", str(here / "photos")],
    "learn at once": lambda here: ["learn", str(here / "bulk"), "--data", str(here / "photos"), "--engine", "local"],
    "predict": lambda here: ["predict", str(here / "model"), str(here / "photos")],
    "evaluate": lambda here: ["evaluate", str(here / "model"), "--data", str(here / "photos")],
    "suggest": lambda here: ["suggest", str(here / "model"), str(here / "photos")],
    "bench": lambda here: ["bench"],
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here")
    labelled(folder / "photos", 4)
    classifier = Classifier(["genus", "species"], backbone="tiny", image_size=32, method="acil")
    x, _ = exam()
    classifier.learn(x[:2], [("Parus", "genus"), ("Turdus", "genus")])
    classifier.save(folder / "model")
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_device_that_is_not_there_is_refused(
    name: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    code, _, errors = command(capsys, monkeypatch, *COMMANDS[name](here), "--device", "cuda:7")
    assert code == 2
    assert errors.endswith("dhocl: --device cuda:7: there is 1 GPU here; choose one of auto, cpu, cuda:0, cuda\n")


@pytest.mark.parametrize("options", [["service", "--levels", "kind"], ["model"]], ids=["new", "there already"])
def test_a_service_refuses_it_too(options: list[str], here: Path) -> None:
    """In a process of its own: a service changes settings of its process."""
    folder, *more = options
    done = dhocl("serve", "--model", str(here / folder), *more, "--port", "0", "--device", "cuda:7")
    assert done.returncode == 2
    assert "dhocl: --device cuda:7: there " in done.stderr


def test_a_replica_refuses_it_too(here: Path) -> None:
    done = dhocl("serve", "--follow", str(here / "model"), "--port", "0", "--device", "cuda:7")
    assert done.returncode == 2
    assert "dhocl: --device cuda:7: there " in done.stderr


def test_a_model_is_made_in_mixed_precision(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("learn", "learn at once"):
        words = COMMANDS[name](here)
        assert command(capsys, monkeypatch, *words, "--backbone", "tiny", "--precision", "bfloat16")[0] == 0
        assert Classifier.load(words[1]).model.config.precision == "bfloat16"


def test_a_model_keeps_its_precision(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = command(capsys, monkeypatch, *COMMANDS["learn more"](here), "--precision", "bfloat16")
    served = dhocl("serve", "--model", str(here / "model"), "--port", "0", "--precision", "bfloat16")
    replica = dhocl("serve", "--follow", str(here / "model"), "--port", "0", "--precision", "bfloat16")
    assert (learned[0], served.returncode, replica.returncode) == (2, 2, 2)
    assert "was created with --precision float32: leave the option out" in learned[2]
    assert "was created with --precision float32: leave the option out" in served.stderr
    assert "leave out --precision" in replica.stderr
