"""Sweeps on a real Ray cluster: several nodes on this machine, one of which is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dhocl.core.errors import InputError
from dhocl.experiment import recipes
from dhocl.experiment.recipes import Recipe, Scale
from dhocl.experiment.record import Record
from dhocl.experiment.sweep import Ended, Underway, prepare, start
from tests.helpers.sweeps import cells, curves

ray = pytest.importorskip("ray")


@pytest.mark.cluster
def test_a_sweep_survives_the_loss_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.cluster_utils import Cluster

    grid = cells("acil", "er", "cbrs", "finetune", samples=880)
    monkeypatch.setitem(recipes.RECIPES, "main", Recipe("", "", lambda _: grid, ()))
    list(start(prepare(tmp_path / "here", ["main"], Scale.smoke, range(1), None), "local", 2, None))

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        lost = cluster.add_node(num_cpus=1)
        jobs = prepare(tmp_path / "there", ["main"], Scale.smoke, range(1), None)
        problems, removed = [], False
        for event in start(jobs, "ray", 0, cluster.address):
            if isinstance(event, Underway) and not removed:
                removed = True
                cluster.remove_node(lost, allow_graceful=False)
                cluster.add_node(num_cpus=1)
            if isinstance(event, Ended):
                problems.append(event.problem)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert removed
    assert problems == [None] * 4
    assert curves(tmp_path / "there") == curves(tmp_path / "here")
    assert len(curves(tmp_path / "here")) == 4
    assert not list((tmp_path / "there" / "runs").glob(".*")), "the marks are taken away"


def test_where_the_folder_is_not_shared_files_are_sent_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dhocl.experiment.sweep import cluster

    monkeypatch.setitem(recipes.RECIPES, "main", Recipe("", "", lambda _: cells("acil"), ()))
    (job,) = prepare(tmp_path / "there", ["main"], Scale.smoke, range(1), None)

    class Deaf:
        class write:  # noqa: N801
            @staticmethod
            def remote(*words: object) -> None: ...

    problem, files = cluster._task(job, set(), Deaf)
    assert problem is None
    assert not job.folder.exists()
    assert {"config.json", "curve.jsonl", "summary.json", "taxonomy.jsonl"} <= set(files)
    cluster._keep(job, files)
    assert Record(job.folder).finished


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    words = ["sweep", "delay", "--engine", "ray", "--address", "127.0.0.1:1", "--out", str(tmp_path), "--quiet"]
    result = subprocess.run(
        [sys.executable, "-c", "from dhocl.cli import main; main()", *words], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "the cluster at 127.0.0.1:1 can not be reached" in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("dhocl:")]) == 1


def test_an_address_without_its_engine_is_refused() -> None:
    with pytest.raises(InputError, match="add `engine` ray"):
        start([], "local", 1, "127.0.0.1:6379")
