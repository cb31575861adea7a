"""Bulk learning on a real Ray cluster of three nodes on this machine, one of which is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dhocl import Classifier
from dhocl.bulk import on_ray
from dhocl.bulk.learning import learn_in_bulk
from dhocl.bulk.work import Part, Row, Task
from tests.bulk.test_learning import OPTIONS, assert_same, learned
from tests.helpers.albums import draw, labelled

ray = pytest.importorskip("ray")


class Resources:
    """Of which only the resources are asked for."""

    def __init__(self, **resources: float) -> None:
        self.resources = resources

    def cluster_resources(self) -> dict[str, float]:
        return self.resources


def test_rounds_are_as_large_as_the_cluster() -> None:
    rounds = 2 * on_ray.MOST
    assert on_ray.RayEngine(Resources(CPU=100.0), 0).every == 100 * rounds
    assert on_ray.RayEngine(Resources(CPU=100.0, GPU=8.0), 0).every == 8 * rounds
    assert on_ray.RayEngine(Resources(CPU=100.0), 3).every == 3 * rounds


@pytest.mark.cluster
def test_a_lost_node_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.cluster_utils import Cluster

    data = labelled(tmp_path / "photos", 96)
    broken = sorted((data / "images").glob("*.png"))[3]
    broken.write_bytes(b"no image")
    here = learned(tmp_path / "here", data)
    monkeypatch.setattr(on_ray, "LEAST", 6)
    monkeypatch.setattr(on_ray, "MOST", 6)
    monkeypatch.setattr(on_ray, "FAN", 2)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        lost = cluster.add_node(num_cpus=1)
        cluster.add_node(num_cpus=1)
        with on_ray.ray_engine(cluster.address, 0) as engine:
            removed: list[str] = []

            def losing(model: dict[str, Any], task: Task, rows: Sequence[Row]) -> Iterator[Part]:
                for number, part in enumerate(engine(model, task, rows)):
                    if number == 1 and not removed:
                        cluster.remove_node(lost, allow_graceful=False)
                        removed.append(task)
                    yield part

            steps = list(learn_in_bulk(tmp_path / "there", data, OPTIONS, losing))
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert removed == ["labels"]
    assert [str(broken) in problem for step in steps for problem in step.problems] == [True]
    assert steps[-1].done == steps[-1].total
    there = Classifier.load(tmp_path / "there")
    assert_same(here, there)
    assert sorted(there.learned.tolist()) == sorted(here.learned.tolist())
    more = draw(tmp_path / "more", ["robin", "crow"] * 4, seed=5)
    for model in (here, there):
        model.learn(more, [("robin", "species"), ("wren", "species")] * 4)
    assert_same(here, there)
    assert [str(each.path) for each in here.predict(more)] == [str(each.path) for each in there.predict(more)]
