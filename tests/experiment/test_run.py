from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dhocl.core.errors import InputError
from dhocl.experiment import run as module
from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import Evaluator
from dhocl.experiment.record import Record
from dhocl.knowledge import Curator, Oracle
from dhocl.nn.backbones.simple import Tiny
from tests.helpers.small_runs import FINISHED, SMALL, finish


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


def test_matrices_are_kept_of_the_first_evaluation_with_10_and_50_classes_and_of_the_last(finished: Record) -> None:
    known = [line["classes"]["2"] for line in finished.curve()]
    first = {mark: next(width for width in known if width >= mark) for mark in (10, 50)} | {None: known[-1]}
    assert len(set(first.values())) == 3
    for mark, width in first.items():
        assert finished.matrices(mark)["prototypes.2"].shape == (width, width)


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
    monkeypatch.setattr("dhocl.model.model.Curator", lambda *given, retry: Curator(*given, retry=True))
    again = finish(RunConfig(**FINISHED), tmp_path / "again")
    for name in ("curve.jsonl", "taxonomy.jsonl"):
        assert (again.folder / name).read_bytes() == (finished.folder / name).read_bytes()


def test_judged_in_parts_side_by_side_it_is_the_same(
    finished: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhocl.experiment.evaluate.PIXELS_AT_ONCE", 100 * 32 * 32)  # two chunks of four parts
    monkeypatch.setattr("dhocl.nn.backbones.parts.PART", 30 * 32 * 32)
    sizes = []
    encode = Tiny.encode
    monkeypatch.setattr(Tiny, "encode", lambda f, x: (sizes.append(len(x)), encode(f, x))[1])
    parts = finish(RunConfig(**FINISHED), tmp_path / "parts")
    assert max(sizes) == 30
    assert parts.curve() == finished.curve()


def test_another_seed_is_another_stream(finished: Record, tmp_path: Path) -> None:
    other = finish(RunConfig(**SMALL | {"seed": 1, "method": "acil"}), tmp_path / "other")
    same = finish(RunConfig(**SMALL | {"method": "acil"}), tmp_path / "same")
    assert other.describe()["stream"] != finished.describe()["stream"]
    assert same.describe()["stream"] == finished.describe()["stream"]


@pytest.mark.parametrize("buffer", [0, 20, 40])
def test_cost_is_counted_in_steps_of_replay(buffer: int, tmp_path: Path) -> None:
    """Whoever replays costs 1 by definition; frozen features cost the forwards of the stream."""
    sizes = SMALL | {"buffer": buffer}
    assert finish(RunConfig("er", **sizes), tmp_path / "er").summary()["cost_vs_er"] == 1
    replayed = sum(min(8, buffer, 16 * step) for step in range(25))
    frozen = finish(RunConfig("acil", **sizes), tmp_path / "acil").summary()["cost_vs_er"]
    assert frozen == pytest.approx(400 / (3 * (400 + replayed)))


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
    from dhocl.methods.er import ER

    monkeypatch.setattr("dhocl.model.model.Oracle", lambda tree: Blindfold(Oracle(tree)))
    arrived: set[int] = set()
    learn = ER.learn

    def watched(self: ER, batch: object, taxonomy: object) -> dict[str, float]:
        arrived.update(batch.y.tolist())
        assert set(range(len(taxonomy))) == arrived
        return learn(self, batch, taxonomy)

    monkeypatch.setattr(ER, "learn", watched)
    record = finish(RunConfig(**SMALL | {"method": "er"}), tmp_path / "run")
    assert record.finished


def test_what_is_configured_reaches_those_it_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dhocl.experiment import run as module

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
    from dhocl.nn.features import FrozenFeatures

    images = 0
    call = FrozenFeatures.__call__

    def counted(self: FrozenFeatures, pixels: object) -> object:
        nonlocal images
        images += len(pixels)
        return call(self, pixels)

    monkeypatch.setattr(FrozenFeatures, "__call__", counted)
    finish(RunConfig(**FINISHED), tmp_path / "run")
    assert images == SMALL["samples"] + SMALL["test_samples"]


def test_evaluations_before_the_last_may_use_fewer_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    call = Evaluator.__call__

    def counted(self: Evaluator, *given: Any, **options: Any) -> Any:
        seen.append(self._nodes)
        return call(self, *given, **options)

    monkeypatch.setattr(Evaluator, "__call__", counted)
    config = SMALL | {"method": "acil", "eval_every": 160, "eval_samples": 60}
    curve = finish(RunConfig(**config), tmp_path / "run").curve()
    assert [len(nodes) for nodes in seen] == [60, 60, 200]
    assert len(curve) == 3
    assert torch.equal(seen[0], seen[1])
    counts = torch.unique(seen[0], return_counts=True)[1]
    assert counts.max() - counts.min() <= 1, "balanced over the classes"


def test_the_curve_is_json_lines_without_times(finished: Record) -> None:
    for line in (finished.folder / "curve.jsonl").read_text().splitlines():
        assert "seconds" not in json.loads(line)


def test_calibration_changes_probabilities_and_not_what_is_most_probable(tmp_path: Path) -> None:
    chosen = SMALL | {"method": "acil"}
    plain, calibrated = (
        finish(RunConfig(**chosen, calibrate=calibrate), tmp_path / str(calibrate)) for calibrate in (False, True)
    )
    for a, b in zip(plain.curve(), calibrated.curve(), strict=True):
        assert a["level_accuracy"] == b["level_accuracy"]
    assert plain.curve()[-1]["level_ece"] != calibrated.curve()[-1]["level_ece"]
    assert calibrated.summary()["cost_vs_er"] > plain.summary()["cost_vs_er"], "each batch is predicted first"


def test_a_folder_may_be_given_as_text(tmp_path: Path) -> None:
    config = RunConfig(**SMALL | {"method": "acil"})
    assert next(module.run(config, str(tmp_path / "run"))).step == 1
    assert Record(tmp_path / "run").config() == config


def test_a_run_that_began_while_data_were_read_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, load = RunConfig(**SMALL | {"method": "acil"}), module.load_dataset

    def slowly(config: RunConfig) -> object:
        monkeypatch.setattr(module, "load_dataset", load)
        finish(config, tmp_path / "run")
        return load(config)

    monkeypatch.setattr(module, "load_dataset", slowly)
    with pytest.raises(InputError, match="has a run already"):
        next(module.run(config, tmp_path / "run"))
    assert Record(tmp_path / "run").finished
