from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dhocl.core.errors import InputError
from dhocl.data import Dataset, Selection, dataset, load
from dhocl.data.files import Files, _results, read_ahead
from dhocl.experiment.config import RunConfig
from dhocl.experiment.record import Record
from dhocl.experiment.run import run
from dhocl.stream import PlanConfig, Stream, plan

SPECIES = {"robin": "bird", "wren": "bird", "tabby": "cat", "lion": "cat"}


def fill(folder: Path, per_class: int = 9) -> Path:
    """A data set in files: every third image is a test image, and each has its own shade."""
    folder.mkdir()
    (folder / "tree.tsv").write_text(
        "child\tlevel\tparent\nbird\tkind\ncat\tkind\n"
        + "".join(f"{name}\tspecies\t{kind}\n" for name, kind in SPECIES.items())
    )
    rows = ["path,label,level,split"]
    for number in range(per_class * len(SPECIES)):
        name = list(SPECIES)[number % len(SPECIES)]
        Image.new("RGB", (20, 16), (5 * number, 250 - 5 * number, 90)).save(folder / f"{number}.jpg")
        rows.append(f"{number}.jpg,{name},species,{'test' if number % 3 == 2 else 'train'}")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return fill(tmp_path / "mine")


@pytest.fixture
def nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "IN_MEMORY", 0)


def both(data: Path) -> tuple[Dataset, Dataset]:
    """The same data set in memory, and in its files."""
    chosen = Selection(data, image_size=8)
    memory = load("folder", chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "IN_MEMORY", 0)
        return memory, load("folder", chosen)


def stream(of: Dataset, batch: int = 5) -> Stream:
    return Stream(of, plan(of.train.nodes.numpy(), of.tree, PlanConfig(groups=2)), batch)


def test_what_fits_is_decoded_and_what_does_not_stays_in_its_files(
    data: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "IN_MEMORY", 12 * 3 * 8 * 8)  # the test images, to the byte
    mixed = load("folder", Selection(data, image_size=8))
    assert isinstance(mixed.train.images, Files)
    assert isinstance(mixed.test.images, torch.Tensor)
    assert len(list(own_cache.iterdir())) == 1, "only what was decoded is cached"
    assert isinstance(load("folder", Selection(data, image_size=8, samples=12)).train.images, torch.Tensor)


def test_files_give_the_same_images_as_memory(data: Path) -> None:
    memory, files = both(data)
    rows = torch.tensor([3, 0, 3, 11])
    assert len(files.train.images) == len(files.train) == 24
    assert torch.equal(files.train.images[rows], memory.train.images[rows])
    assert torch.equal(files.train.nodes, memory.train.nodes)


def test_files_give_the_same_batches_as_memory_from_any_step(data: Path) -> None:
    memory, files = (stream(one) for one in both(data))
    for start in (0, 3):
        read, expected = list(files.batches(start)), list(memory.batches(start))
        assert [labels for _, labels in read] == [labels for _, labels in expected]
        assert all(torch.equal(a, b) for (a, _), (b, _) in zip(read, expected, strict=True))


@pytest.mark.usefixtures("nothing_fits")
def test_the_digest_follows_names_and_sizes_of_the_files(data: Path, tmp_path: Path) -> None:
    def digest(folder: Path) -> str:
        return stream(load("folder", Selection(folder, image_size=8))).digest()

    first = digest(data)
    assert first == digest(fill(tmp_path / "moved")), "the same files elsewhere"
    Image.new("RGB", (200, 160)).save(data / "0.jpg")
    assert digest(data) != first, "another size"
    (data / "7.jpg").unlink()
    with pytest.raises(InputError, match=r"line 9: the image .*7\.jpg is missing"):
        list(Files(data, ["0.jpg", "7.jpg"], 8, places=["line 2", "line 9"]).identity())


def test_a_damaged_file_is_named_by_the_process_that_reads_it(data: Path) -> None:
    (data / "4.jpg").write_bytes((data / "4.jpg").read_bytes()[:100])
    files = Files(data, [f"{number}.jpg" for number in range(8)] + ["gone.jpg"], 8)
    batches = read_ahead(files, torch.arange(8).split(2))
    assert len(next(batches)) == len(next(batches)) == 2
    with pytest.raises(InputError, match=r"4\.jpg is damaged"):
        next(batches)
    with pytest.raises(InputError, match=r"gone\.jpg is missing"):
        list(read_ahead(files, [torch.tensor([8])]))


def test_images_in_memory_are_read_without_a_thread_of_their_own() -> None:
    """OpenMP would give it a team, and with more threads than cores all teams wait by sleeping: 1.7 x the time."""
    before = threading.active_count()
    images = torch.arange(6).view(6, 1, 1, 1).expand(6, 3, 2, 2)
    for batch, rows in zip(read_ahead(images, torch.arange(6).split(2)), torch.arange(6).split(2), strict=True):
        assert torch.equal(batch, images[rows])
        assert threading.active_count() == before


def test_a_few_batches_are_made_ahead_and_none_is_left_behind() -> None:
    jobs: list[Future[int]] = []

    def submitted() -> Iterator[Future[int]]:
        for number in range(10):
            jobs.append(Future())
            if number < 5:
                jobs[-1].set_result(number)
            yield jobs[-1]

    results = _results(submitted(), ahead=3)
    assert [next(results), next(results)] == [0, 1]
    assert len(jobs) == 5, "the two that were used and three more"
    assert next(results) == 2
    results.close()  # type: ignore[attr-defined]
    assert jobs[5].cancelled()


def test_a_run_from_files_is_the_run_from_memory(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig(
        method="acil", backbone="tiny", dataset="folder", data=str(data), image_size=32, groups=2, batch=4, eval_every=8
    )
    ends = []
    for name in ("memory", "files"):
        for _ in run(config, tmp_path / name):
            pass
        ends.append(Record(tmp_path / name).curve())
        monkeypatch.setattr(dataset, "IN_MEMORY", 0)
    assert ends[0] == ends[1]
    assert len(ends[0]) > 1


READ_AND_WAIT = """
import multiprocessing, sys, time
from pathlib import Path
import torch
from dhocl.data.files import Files, read_ahead

if __name__ == "__main__":
    next(read_ahead(Files(Path(sys.argv[1]), ["0.jpg"], 8), [torch.tensor([0])]))
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    time.sleep(60)
"""


def test_the_processes_end_with_the_one_they_work_for(data: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(READ_AND_WAIT)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(data)], stdout=subprocess.PIPE, text=True
    ) as script:
        assert script.stdout is not None
        workers = [int(pid) for pid in script.stdout.readline().split()]
        assert workers
        script.send_signal(signal.SIGKILL)
    for _ in range(100):
        if not any(alive(pid) for pid in workers):
            return
        time.sleep(0.1)
    pytest.fail("still there after ten seconds")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_script_that_does_not_guard_its_start_is_told(data: Path, tmp_path: Path) -> None:
    unguarded = READ_AND_WAIT.replace('if __name__ == "__main__":', "if True:")
    (tmp_path / "script.py").write_text(unguarded)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(data)], capture_output=True, text=True, check=False
    )
    assert "InputError: a process that decodes images was killed" in done.stderr


def test_decoded_images_are_taken_from_the_cache_until_a_file_changes(data: Path) -> None:
    files = Files(data, ["0.jpg", "1.jpg"], 8)
    first = files.decoded()
    assert np.array_equal(files.decoded(), first)
    Image.new("RGB", (30, 30), (200, 200, 200)).save(data / "1.jpg")
    assert (files.decoded()[1] == 200).all()
    assert np.array_equal(files.decoded()[0], first[0])
