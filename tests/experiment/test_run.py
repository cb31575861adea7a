from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dhocl.core import checkpoint
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


def test_an_evaluation_covers_the_classes_of_the_batches_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recomputed image by image from the first rows of the plan; each batch of this stream brings new classes."""
    config = RunConfig(**SMALL | {"method": "acil", "samples": 96, "groups": 6, "eval_every": 16})
    dataset = module.load_dataset(config)
    table, _ = module.make_plan(config, dataset)
    tree = dataset.tree
    expected: list[dict[str, dict[str, float]]] = []
    call = Evaluator.__call__

    def recomputed(self: Evaluator, model: Any, *given: Any) -> Any:
        batches = len(expected) + 1
        arrived = dataset.train.nodes[torch.from_numpy(table[: batches * config.batch, 0])].tolist()
        seen = {tree.labels[node] for leaf in arrived for node in tree.lineage(leaf)}
        beliefs, known = model.beliefs(dataset.test.images), model.taxonomy
        hits: dict[str, dict[str, list[float]]] = {"": {}, "open": {}}
        for row, leaf in enumerate(dataset.test.nodes.tolist()):
            for label in (tree.labels[node] for node in tree.lineage(leaf)):
                if label in known:
                    column = beliefs.choices("level")[label.level].column[row]
                    hit = 100.0 * (known.labels[known.nodes(label.level)[column]] == label)
                    for name in ("", "open") if tree.labels[leaf] in seen else ("open",):
                        hits[name].setdefault(str(label.level), []).append(hit)
        expected.append({name: {level: sum(h) / len(h) for level, h in own.items()} for name, own in hits.items()})
        return call(self, model, *given)

    monkeypatch.setattr(Evaluator, "__call__", recomputed)
    curve = finish(config, tmp_path / "run").curve()
    assert len(curve) == len(expected) == 6
    for line, own in zip(curve, expected, strict=True):
        assert line["level_accuracy"] == pytest.approx(own[""])
        assert line["open"]["level_accuracy"] == pytest.approx(own["open"])


def test_methods_know_the_length_of_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of 400 samples is a period of 40: the batches of 16 that pass a multiple of it."""
    from dhocl.nn.snapshot import Snapshot

    taken: list[int] = []
    take = Snapshot.take
    monkeypatch.setattr(Snapshot, "take", lambda self: (taken.append(step), take(self)))
    step = 1
    for progress in module.run(RunConfig(**SMALL | {"method": "lwf"}), tmp_path / "run"):
        step = progress.step + 1
    assert taken == [-(-40 * period // 16) for period in range(1, 11)]


PIXELS = 3 * 32 * 32
ITEM = PIXELS + 8 + 8  # bytes of a stored image: pixels, label, number in the stream


def megabytes(folder: Path, method: str, **more: Any) -> float:
    return float(finish(RunConfig(**SMALL | {"method": method} | more), folder).summary()["state_mb"])


def test_the_state_of_replay_grows_by_the_images_of_its_buffer(tmp_path: Path) -> None:
    small, large, empty = (megabytes(tmp_path / f"{buffer}", "er", buffer=buffer) for buffer in (40, 100, 0))
    assert large - small == pytest.approx(60 * ITEM / 1e6, abs=1e-9)
    assert small - empty == pytest.approx(40 * ITEM / 1e6, abs=1e-9)


def test_the_state_of_a_regression_is_its_sums_and_what_can_be_forgotten(tmp_path: Path) -> None:
    record = finish(RunConfig(**SMALL | {"method": "acil"}), tmp_path / "run")
    dim, widths = Tiny().dim, record.curve()[-1]["classes"].values()
    sums = sum(4 * dim * (dim + classes) for classes in widths)  # R and W of each level
    state = checkpoint.load_newest(record.checkpoints)
    assert state is not None
    samples = module.nbytes(state["model"]["learner"]["ledger"])
    assert samples > 400 * 16  # key and label of each sample, and its targets
    assert record.summary()["state_mb"] * 1e6 == sums + samples


def test_the_state_is_the_largest_and_not_that_at_the_end(tmp_path: Path) -> None:
    """RM empties what waits beside its buffer after 208 and 400 samples. Before the last batch, 384 have arrived."""
    chosen = {"settings": {"every": 200, "memory_epochs": 0}, "eval_every": 400}
    waiting = megabytes(tmp_path / "rm", "rm", **chosen) - megabytes(tmp_path / "er", "er", buffer=0)
    stored = waiting * 1e6 / ITEM  # less the rows of the classes that come with the last batch
    assert 40 + 384 - 208 - 2 < stored < 40 + 384 - 208


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
