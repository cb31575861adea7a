"""The engine of a sweep on this machine, and its report."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from dhocl.core.errors import InputError
from dhocl.core.files import locked
from dhocl.experiment import recipes, sweep
from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import POPULATIONS
from dhocl.experiment.recipes import Curves, Numbers, Recipe, Scale
from dhocl.experiment.record import Record
from dhocl.experiment.run import run
from dhocl.experiment.sweep import (
    FAILED,
    Begun,
    Ended,
    Job,
    SweepFolder,
    Underway,
    local,
    prepare,
    start,
    work,
)
from dhocl.experiment.sweep.work import Place, places
from dhocl.report import write_sweep_report
from tests.helpers.sweeps import TINY, cells, curves


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe of two quick runs a seed, in the place of `main`."""
    small = Recipe("Two methods", "nowhere", lambda _: cells("acil", "er"), (Numbers(), Curves()))
    monkeypatch.setitem(recipes.RECIPES, "main", small)


def listen(jobs: list[Job], workers: int = 2, engine: str = "local") -> list[sweep.Event]:
    return list(start(jobs, engine, workers, None))


# -- the engine here -------------------------------------------------------------------------------------------


@given(*(st.integers(0, 9) for _ in range(2)), st.integers(1, 64), st.integers(0, 8))
def test_each_gpu_has_a_worker_before_one_has_two(workers: int, jobs: int, cores: int, gpus: int) -> None:
    found = places(workers, jobs, cores, gpus)
    assert len(found) == max(1, min(workers or gpus or cores, jobs))
    each = Counter(place.device for place in found)
    assert each.keys() <= ({f"cuda:{number}" for number in range(gpus)} if gpus else {"cpu"})
    if gpus:
        assert max(each.values()) - (min(each.values()) if len(each) == gpus else 0) <= 1
    assert all(place.threads >= 1 for place in found)
    assert sum(place.threads for place in found) <= max(cores, len(found))


@pytest.mark.usefixtures("recipe")
def test_workers_compute_where_their_place_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = prepare(tmp_path / "sweep", ["main"], Scale.smoke, range(2), None)
    seen: list[list[Place]] = []
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(local, "run_here", lambda _, places: seen.append(places) or iter(()))
    listen(jobs, workers=0)
    assert [place.device for place in seen[0]] == ["cuda:0", "cuda:1"]

    devices: list[str] = []
    monkeypatch.setattr(local, "prepare", lambda threads: None)
    monkeypatch.setattr(local, "finish", lambda config, folder, report, device: devices.append(device))
    ours, theirs = multiprocessing.Pipe()
    ours.send(jobs[0])
    worker = threading.Thread(target=local.work, args=(theirs, seen[0][1]))
    worker.start()
    assert ours.recv() is None
    ours.close()
    worker.join()
    assert devices == ["cuda:1"]


@pytest.mark.usefixtures("recipe")
def test_processes_make_the_runs_that_one_would_make(tmp_path: Path) -> None:
    jobs = prepare(tmp_path / "sweep", ["main"], Scale.smoke, range(2), None)
    before = dict(os.environ)
    events = listen(jobs)
    assert os.environ == before, "the environment of the workers is theirs alone"
    assert len(jobs) == 4
    assert [event.problem for event in events if isinstance(event, Ended)] == [None] * 4
    assert sum(isinstance(event, Begun) for event in events) == 4
    assert any(isinstance(event, Underway) and 0 < event.samples <= event.total == 240 for event in events)
    for job in jobs:
        for _ in run(job.config, tmp_path / "alone" / job.folder.name):
            pass
        ours = (job.folder / "curve.jsonl").read_bytes()
        assert ours == (tmp_path / "alone" / job.folder.name / "curve.jsonl").read_bytes()
    assert prepare(tmp_path / "sweep", ["main"], Scale.smoke, range(2), None) == [], "finished runs are not run again"


def test_a_run_that_fails_is_recorded_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = cells("er", settings={"lr_backbone": 1e30})
    monkeypatch.setitem(recipes.RECIPES, "main", Recipe("", "", lambda _: broken + cells("acil"), (Numbers(),)))
    events = listen(prepare(tmp_path, ["main"], Scale.smoke, range(1), None), workers=1)
    problems = [event.problem for event in events if isinstance(event, Ended)]
    assert problems[0] is not None
    assert "training diverged" in problems[0]
    assert problems[1] is None
    (failed,) = tmp_path.glob(f"runs/*/{FAILED}")
    assert "Traceback" in failed.read_text()
    page = write_sweep_report(tmp_path).read_text()
    assert "training diverged" in page
    assert len(prepare(tmp_path, ["main"], Scale.smoke, range(1), None)) == 1, "what failed is tried again"


@pytest.mark.usefixtures("recipe")
def test_a_run_of_another_process_is_left_to_it(tmp_path: Path) -> None:
    """Two sweeps in one folder."""
    jobs = prepare(tmp_path, ["main"], Scale.smoke, range(1), None)
    with locked(jobs[0].folder):
        problems = [event.reason for event in listen(jobs, 1) if isinstance(event, Ended)]
    assert "is in use by another process: stop that one first" in problems[0]
    assert problems[1] == ""
    assert not (jobs[0].folder / FAILED).exists()
    assert [job.finished for job in jobs] == [False, True]
    assert [event.problem for event in listen(jobs[:1], 1) if isinstance(event, Ended)] == [None]


def test_a_run_that_another_process_finishes_meanwhile_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finished_meanwhile(*_: object, **__: object) -> None:
        Record(tmp_path / "run").finish({}, {})
        raise InputError("it is finished")

    monkeypatch.setattr(work, "run", finished_meanwhile)
    assert work.finish(RunConfig(**TINY), tmp_path / "run", lambda *_: None) is None
    assert not (tmp_path / "run" / FAILED).exists()


def test_where_a_failure_can_not_be_written_it_is_still_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for place in ("run", "write_atomically"):
        monkeypatch.setattr(work, place, full)
    problem = work.finish(RunConfig(**TINY), tmp_path / "run", lambda *_: None)
    assert problem is not None
    assert "No space left on device" in problem


@pytest.mark.usefixtures("recipe")
def test_a_failure_without_a_message_is_no_defect_of_the_report(tmp_path: Path) -> None:
    job = prepare(tmp_path, ["main"], Scale.smoke, range(1), None)[0]
    job.folder.mkdir(parents=True)
    (job.folder / FAILED).touch()
    assert "no message" in write_sweep_report(tmp_path).read_text()


@pytest.mark.usefixtures("recipe")
def test_a_process_that_dies_is_told_of_and_replaced(tmp_path: Path) -> None:
    jobs = prepare(tmp_path, ["main"], Scale.smoke, range(2), None)
    others = multiprocessing.active_children()  # those that read images stay for as long as Python runs
    ended, killed = [], False
    for event in start(jobs, "local", 1, None):
        if isinstance(event, Underway) and not killed:
            killed = True
            (worker,) = set(multiprocessing.active_children()) - set(others)
            worker.kill()
        if isinstance(event, Ended):
            ended.append(event.problem)
    assert ended == ["its process died with exit code -9", None, None, None]


COMMAND = [
    sys.executable,
    "-c",
    "from dhocl.cli import main; main()",
    "sweep",
    "delay",
    "--workers",
    "2",
    "--quiet",
    "--out",
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The curves of a real command that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run([*COMMAND, folder], check=True)
    assert len(curves(folder)) == 3
    return curves(folder)


def test_stopped_at_any_time_and_started_again_is_the_same(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """A real command, killed in the midst of its runs; the same command goes on."""
    process = subprocess.Popen([*COMMAND, tmp_path], start_new_session=True)
    deadline = time.monotonic() + 120
    while not curves(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not all(Record(path).finished for path in (tmp_path / "runs").iterdir())
    subprocess.run([*COMMAND, tmp_path], check=True)
    assert curves(tmp_path) == whole


def test_two_commands_at_once_share_the_runs(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """Each run is made by one of them. If it is in use at its end, the other one reports that, and nothing else."""
    together = [subprocess.Popen([*COMMAND, tmp_path], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in together:
        errors = process.communicate(timeout=600)[1]
        assert process.returncode == 1 if errors else process.returncode == 0
        assert all("is in use by another process" in line for line in errors.splitlines())
    assert all(Record(path).finished for path in (tmp_path / "runs").iterdir())
    assert curves(tmp_path) == whole, "no line is there twice"
    assert not list(tmp_path.glob(f"runs/*/{FAILED}"))
    files = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*")}
    subprocess.run([*COMMAND, tmp_path], check=True)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*")} == files, "nothing is left to do"


# -- the report ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("recipe")
def test_tables_and_figures_are_files(tmp_path: Path) -> None:
    listen(prepare(tmp_path, ["main"], Scale.smoke, range(2), None))
    page = write_sweep_report(tmp_path)
    assert page == tmp_path / "index.html"
    summaries = [
        json.loads((tmp_path / "runs" / entry.run / "summary.json").read_text())
        for entry in SweepFolder(tmp_path).read("main")[1]
        if entry.row == "er"
    ]
    mean = sum(summary["AAUC"] for summary in summaries) / 2
    assert f"{mean:.1f}" in (tmp_path / "tables" / "main-glyphs.md").read_text()
    rows = (tmp_path / "tables" / "main-glyphs.csv").read_text().splitlines()
    assert rows[0] == "row,seed,AAUC,FAUC,MS,FFAcc,open.AAUC"
    assert [row.split(",")[:2] for row in rows[1:]] == [["acil", "0"], ["acil", "1"], ["er", "0"], ["er", "1"]]
    assert float(rows[3].split(",")[2]) == summaries[0]["AAUC"]
    latex = (tmp_path / "tables" / "main-glyphs.tex").read_text()
    assert r"\toprule" in latex
    assert r"\pm" in latex
    for suffix in ("svg", "png"):
        assert (tmp_path / "figures" / f"main-glyphs-fine_accuracy.{suffix}").stat().st_size > 1000
    assert "<script src" not in page.read_text()
    assert all(str(escape(sentence)) in page.read_text() for sentence in POPULATIONS.values())
    assert "Paired differences to the best of the column" in page.read_text()


def test_a_folder_without_a_sweep_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no sweep"):
        write_sweep_report(tmp_path)
