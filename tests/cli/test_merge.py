"""`dhocl merge`: models of two sites become one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dhocl import Classifier
from dhocl.classifier.learning import learn_album
from tests.helpers.albums import labelled
from tests.helpers.small_runs import command


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models, each with photographs of its own."""
    folder = tmp_path_factory.mktemp("sites")
    for seed, name in enumerate(("london", "paris")):
        data = labelled(folder / f"photos-{name}", 24, seed)
        for _ in learn_album(folder / name, data, {"backbone": "tiny", "image_size": 32}):
            pass
    return [folder / "london", folder / "paris"]


def test_one_model_from_two(
    sites: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    london, paris = map(Classifier.load, sites)
    paris.link(("robin", "species"), ("fish", "kind"))
    paris.save(tmp_path / "paris")
    arguments = ["merge", str(sites[0]), str(tmp_path / "paris"), "-o", str(tmp_path / "both")]
    code, printed, told = command(capsys, monkeypatch, *arguments)
    assert code == 0
    assert printed.endswith("both from " + " and ".join(arguments[1:3]) + ": 6 classes, 1 contradictions\n")
    assert told == "robin is below bird and not below fish\n"
    both = Classifier.load(tmp_path / "both")
    assert sorted(both.learned.tolist()) == sorted([*london.learned.tolist(), *paris.learned.tolist()])
    assert both.model.learner.window.seen == 48  # type: ignore[union-attr]
    for _ in learn_album(tmp_path / "both", sites[1].parent / "photos-paris", {}):
        pass
    assert Classifier.load(tmp_path / "both").model.learner.window.seen == 48  # type: ignore[union-attr]
    code, _, told = command(capsys, monkeypatch, *arguments)
    assert (code, len(told.splitlines())) == (2, 1)
    assert "is not empty" in told


def test_a_model_to_send_has_no_single_images(
    sites: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, _ = command(capsys, monkeypatch, "merge", str(sites[0]), "-o", str(tmp_path / "sent"), "--sums-only")
    assert code == 0
    sent = Classifier.load(tmp_path / "sent")
    assert len(sent.learned) == len(sent.model.learner.window.y) == sent.model.learner.memory.size == 0  # type: ignore[union-attr]
    assert sent.predict(sorted((sites[0].parent / "photos-london" / "images").glob("*.png"))[:2])


def test_models_that_differ_are_refused_by_name(
    sites: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Classifier(["kind", "species"], backbone="tiny", image_size=40).save(tmp_path / "large")
    code, _, told = command(
        capsys, monkeypatch, "merge", str(sites[0]), str(tmp_path / "large"), "-o", str(tmp_path / "out")
    )
    assert code == 2
    assert told.strip().endswith("these models can not be merged: `image_size` is 32 in one, 40 in the other")
    assert not (tmp_path / "out").exists()
