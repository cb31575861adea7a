"""Learning in bulk equals learning one by one, as far as sums are concerned, and does not depend on the order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from torch import Tensor

from dhocl import Classifier, Label
from dhocl.bulk.learning import Engine, learn_in_bulk, locally
from dhocl.bulk.work import Part, Row, Task, Worker
from dhocl.classifier.learning import Progress, learn_album
from dhocl.core.errors import InputError
from dhocl.data.album import open_album
from dhocl.methods.amber import Amber
from dhocl.nn.heads.completion import DOUBT, FLOOR
from tests.helpers.albums import draw, labelled

OPTIONS = {"backbone": "tiny", "image_size": 32}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labelled(tmp_path_factory.mktemp("data") / "photos", 80)


def learned(folder: Path, data: Path, engine: Engine = locally, every: int = 1000) -> Classifier:
    for _ in learn_in_bulk(folder, data, OPTIONS, engine, every):
        pass
    return Classifier.load(folder)


def amber(classifier: Classifier) -> Amber:
    assert isinstance(classifier.model.learner, Amber)
    return classifier.model.learner


def assert_same(one: Classifier, other: Classifier) -> None:
    """Statistics and probabilities, to float error."""
    mine, theirs = amber(one).statistics, amber(other).statistics
    assert one.taxonomy.dumps() == other.taxonomy.dumps()
    torch.testing.assert_close(mine.state_dict(), theirs.state_dict(), rtol=1e-5, atol=1e-6)
    x = torch.randint(256, (9, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(one.probabilities(x), other.probabilities(x), rtol=1e-3, atol=1e-4)


def test_labels_add_up_as_if_learned_one_by_one(data: Path, tmp_path: Path) -> None:
    bulk = learned(tmp_path / "bulk", data)
    for _ in learn_album(tmp_path / "online", data, OPTIONS):
        pass
    online = Classifier.load(tmp_path / "online")
    assert amber(bulk).window.seen == amber(online).window.seen == 80
    for label in online.taxonomy:
        here, there = (each.taxonomy.id(label) for each in (bulk, online))
        mine, theirs = amber(bulk).statistics, amber(online).statistics
        assert mine.counts.filled[here] == theirs.counts.filled[there]
        torch.testing.assert_close(mine.sums.filled[here], theirs.sums.filled[there], rtol=1e-5, atol=1e-5)
    for level, gram in amber(online).statistics.grams.items():
        torch.testing.assert_close(amber(bulk).statistics.grams[level], gram, rtol=1e-5, atol=1e-5)
    assert sorted(bulk.learned.tolist()) == sorted(online.learned.tolist())
    assert amber(bulk).reliability.fitted_at == 80
    assert amber(bulk).reliability.log_beta.keys() == {0, 1}
    assert not (tmp_path / "bulk" / "bulk").exists()


def test_labels_are_not_completed_where_the_method_does_not(data: Path, tmp_path: Path) -> None:
    options = OPTIONS | {"settings": {"completion": "never"}}
    tasks: list[Task] = []

    def noting(model: dict[str, Any], task: Task, rows: Sequence[Row]) -> Iterator[Part]:
        tasks.append(task)
        return locally(model, task, rows)

    *_, last = learn_in_bulk(tmp_path / "bulk", data, options, noting)
    assert (last.done, last.total, last.learned) == (80, 80, 80)
    assert tasks == ["labels"]


def backwards(model: dict[str, Any], task: Task, rows: Sequence[Row]) -> Iterator[Part]:
    """As from a cluster: parts of other sizes in another order."""
    worker = Worker(model, task)
    for start in reversed(range(0, len(rows), 7)):
        yield worker(rows[start : start + 7])


def test_the_order_and_the_size_of_parts_have_no_effect(data: Path, tmp_path: Path) -> None:
    assert_same(learned(tmp_path / "one", data), learned(tmp_path / "other", data, backwards, every=33))


def test_a_job_that_was_stopped_goes_on(data: Path, tmp_path: Path) -> None:
    whole = learned(tmp_path / "whole", data, every=30)
    read: list[str] = []

    def counting(model: dict[str, Any], task: Task, rows: Sequence[Row]) -> Iterator[Part]:
        read.extend(f"{task} {row.path}" for row in rows)
        return locally(model, task, rows)

    for stop in (1, 2, 1):  # in the first round, after the second, in a later one
        steps = learn_in_bulk(tmp_path / "parts", data, OPTIONS, counting, 30)
        for _ in range(stop + 1):
            next(steps)
        steps.close()
    parts = learned(tmp_path / "parts", data, counting, every=30)
    assert_same(whole, parts)
    assert torch.equal(parts.learned, whole.learned)
    once = [each for each in set(read) if read.count(each) == 1]
    assert len(once) >= 40  # rounds that were saved are not read again
    (done,) = learn_in_bulk(tmp_path / "parts", data, OPTIONS, counting, 30)
    assert (done.total, done.before) == (0, 80)
    assert_same(parts, Classifier.load(tmp_path / "parts"))


def test_images_that_can_not_be_read_are_listed_and_left_out(data: Path, tmp_path: Path) -> None:
    folder = labelled(tmp_path / "photos", 12)
    broken = sorted((folder / "images").glob("*.png"))[3]
    broken.write_bytes(b"no image")
    steps: list[Progress] = list(learn_in_bulk(tmp_path / "model", folder, OPTIONS))
    problems = [problem for step in steps for problem in step.problems]
    assert len(problems) == 1
    assert str(broken) in problems[0]
    assert steps[-1].learned == 11
    assert steps[-1].done == steps[-1].total


def test_where_no_image_can_be_read_no_model_is_made(tmp_path: Path) -> None:
    folder = labelled(tmp_path / "photos", 4)
    for path in (folder / "images").glob("*.png"):
        path.write_bytes(b"no image")
    last = list(learn_in_bulk(tmp_path / "model", folder, OPTIONS))[-1]
    assert (last.learned, last.total) == (0, 5)
    assert not list((tmp_path / "model").glob("*/*"))


def test_coarse_labels_are_completed_by_outputs_and_frequency(data: Path, tmp_path: Path) -> None:
    """Against a slow recomputation, from the model that has learned the labels."""
    states, coarse = [], []

    def watching(model: dict[str, Any], task: Task, rows: Sequence[Row]) -> Iterator[Part]:
        if task == "guesses":
            states.append(model)
            coarse.extend(rows)
        return locally(model, task, rows)

    final = learned(tmp_path / "model", data, watching)
    first = Classifier.from_state({"model": states[0]})
    learner, tree = amber(first), first.taxonomy
    assert [row.path for row in coarse] == [data / path for path, level in labels_of(data) if level == "kind"]
    A, M, N = learner.statistics.system(1, learner.tree.trusted)
    W = torch.linalg.solve(A.double() + torch.diag(learner.penalties(1).double()), M.double().t())  # (D, C)
    phi = learner.features(first.pixels([row.path for row in coarse]))
    expected = torch.stack(
        [
            guessed(learner.reliability.beta(1) * (row.double() @ W), N, tree, tree.labels[each.node].name)
            for row, each in zip(phi, coarse, strict=True)
        ]
    )
    found = amber(final).statistics.soft[1]
    torch.testing.assert_close(found.N, expected.sum(0).float(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.M, expected.t().float() @ phi, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.A, (expected.sum(1)[:, None].float() * phi).t() @ phi, rtol=1e-3, atol=1e-4)


def labels_of(data: Path) -> list[tuple[str, str]]:
    rows = [line.split(",") for line in (data / "labels.csv").read_text().split()[1:]]
    return [(path, level) for path, _, level in rows]


def guessed(z: Tensor, N: Tensor, tree: Any, kind: str) -> Tensor:
    nodes = tree.nodes(1).tolist()
    below = [tree.labels[tree.parent(node)].name == kind for node in nodes]
    weights = [
        (float(n) + FLOOR) * math.exp(float(each - z.max())) if inside else 0.0
        for n, each, inside in zip(N, z, below, strict=True)
    ]
    inside = sum(float(n) for n, ok in zip(N, below, strict=True) if ok)
    return torch.tensor([weight / sum(weights) * inside / (inside + DOUBT) for weight in weights], dtype=torch.double)


def test_the_model_learns_on_online(data: Path, tmp_path: Path) -> None:
    model = learned(tmp_path / "model", data)
    paths = draw(tmp_path / "more", ["robin", "crow"] * 4, seed=5)
    model.learn(paths, [("robin", "species"), ("wren", "species")] * 4)
    assert Label("wren", 1) in model.taxonomy
    assert amber(model).window.seen == 88
    assert model.predict(paths[1])[0].levels["species"].name in ("wren", "crow")


def test_a_second_data_set_is_added(data: Path, tmp_path: Path) -> None:
    other = labelled(tmp_path / "photos", 40, seed=1)
    learned(tmp_path / "both", data)
    model = learned(tmp_path / "both", other)
    assert amber(model).window.seen == 120
    assert amber(model).statistics.counts.filled.sum() == 120
    assert len(model.learned) == 120


def test_methods_that_do_not_add_up_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the method er can not learn in bulk"):
        next(learn_in_bulk(tmp_path / "model", data, OPTIONS | {"method": "er"}))
    assert not (tmp_path / "model" / "checkpoints").exists()


def test_images_of_a_parquet_file_and_behind_addresses(data: Path, tmp_path: Path) -> None:
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    photos = open_album(data, ("kind", "species")).photos
    far = {photo.name: f"memory://bulk/{number}.png" for number, photo in enumerate(photos)}
    for photo in photos:
        fsspec.filesystem("memory").pipe(far[photo.name].removeprefix("memory:/"), Path(str(photo.path)).read_bytes())
    labels = {
        "label": [photo.label.name for photo in photos],
        "level": [("kind", "species")[photo.label.level] for photo in photos],
    }
    for name, images in {
        "inside": {"image": [Path(str(photo.path)).read_bytes() for photo in photos]},
        "far": {"path": [far[photo.name] for photo in photos]},
    }.items():
        (tmp_path / name).mkdir()
        parquet.write_table(pyarrow.table(images | labels), tmp_path / name / "all.parquet", row_group_size=32)
        (tmp_path / name / "tree.tsv").write_bytes((data / "tree.tsv").read_bytes())
        here, there = learned(tmp_path / "here", data), learned(tmp_path / f"model of {name}", tmp_path / name, alone)
        mine, theirs = amber(here).statistics, amber(there).statistics
        torch.testing.assert_close(mine.sums.filled, theirs.sums.filled)
        assert learned(tmp_path / f"model of {name}", tmp_path / name, alone).learned.shape == (80,)  # nothing is new


def alone(model: dict[str, Any], task: Task, rows: Sequence[Row]) -> Iterator[Part]:
    """In this process, where the addresses of the test can be opened."""
    yield Worker(model, task, ahead=False)(rows)
