from __future__ import annotations

import pytest

from dhocl.experiment import bench
from dhocl.experiment.bench import CHILDREN, LEVELS, METHODS, Workload, full_tree, measure
from tests.helpers.small_runs import command
from tests.helpers.standin import accelerator

SMALL = ("--backbone", "tiny", "--image-size", "32", "--batch", "64", "--seconds", "0")
PARTS = ["forward", *(f"{method}, {what}" for method in METHODS for what in ("learn", "predict"))]


def test_each_part_is_measured_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = command(capsys, monkeypatch, "bench", "--device", "cpu", *SMALL)
    assert code == 0
    title, blank, header, line, *rows = out.splitlines()
    assert "CPU with" in title
    assert "tiny, 32 px, float32, batches of 64" in title
    assert (blank, header, line) == ("", "| part | ms | images/s | peak memory |", "|---|---|---|---|")
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == PARTS
    for row in rows:
        _, milliseconds, rate, peak = row.removesuffix(" |").split(" | ")
        assert float(rate.replace(",", "")) == pytest.approx(64_000 / float(milliseconds.replace(",", "")), rel=0.2)
        assert peak == "-"


def test_a_gpu_is_measured_with_its_memory() -> None:
    with accelerator():
        found = list(measure(Workload("cuda", "tiny", 32, 64, "bfloat16", seconds=0)))
    assert [each.what for each in found] == PARTS
    assert {each.peak_bytes for each in found} == {2**20}


def test_a_device_that_is_not_there_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    code, out, error = command(capsys, monkeypatch, "bench", "--device", "cuda")
    assert code == 2
    assert not out
    assert error == "dhocl: --device cuda: there are no GPUs that PyTorch can use here; choose one of auto, cpu\n"


def test_times_are_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 10.0, 11.0, 20.0, 25.0, 30.0, 40.0])  # batches of 1, 1, 5 and 10 seconds
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    done: list[int] = []
    found = bench._timed("part", lambda: done.append(1), Workload(batch=6, seconds=8), bench.torch.device("cpu"))
    assert found == ("part", 3000.0, 2.0, None)
    assert len(done) == 5, "the first time does not count"


def test_the_tree_has_as_many_classes_as_it_says() -> None:
    tree = full_tree()
    assert list(tree.widths.values()) == [10, 40, 200]
    assert len(LEVELS) == len(CHILDREN)
    assert not tree.unanchored
