"""`dhocl backup`: copies of a model that learns, and what they are worth once the original is gone."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dhocl import Classifier
from dhocl.checks import pictures
from dhocl.core import checkpoint
from dhocl.core.errors import InputError
from dhocl.experiment.record import Record
from dhocl.service import backup as copying
from dhocl.service import journal
from dhocl.service.backup import backup
from dhocl.service.journal import Post
from dhocl.service.served import ServedModel
from tests.helpers.serving import NEW, START, as_post, examples, leave, opened, post, settled, started, until
from tests.helpers.small_runs import command

KEEPING = [*NEW, "--method", "er", "--buffer", "5000", "--checkpoint-every", "20"]


def dhocl_backup(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", START, "backup", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True)


def stored(folder: Path) -> Counter[bytes]:
    """How often each image is in the memory of the learner."""
    state = checkpoint.load_newest(folder / "checkpoints")
    assert state is not None
    return Counter(image.numpy().tobytes() for image in state["model"]["learner"]["memory"]["columns"]["x"])


class Poster(threading.Thread):
    """Posts until it is told to stop. `accepted` is the newest number that was acknowledged."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__()
        self._client = client
        self.accepted = 0
        self.stop = threading.Event()

    def run(self) -> None:
        for seed in range(10_000):
            answer = post(self._client, examples(8, seed))
            if answer.status_code == 202:
                self.accepted = max(answer.json()["accepted"])
            if self.stop.wait(0.1):
                return


def test_copies_made_under_load_outlive_the_original(tmp_path: Path) -> None:
    original, before = tmp_path / "m", []
    with started("--model", original, *KEEPING) as (process, client):
        poster = Poster(client)
        poster.start()
        until(lambda: poster.accepted > 50)
        for copy in range(4):
            before.append(poster.accepted)
            backup(original, tmp_path / f"copy{copy}")
        before.append(poster.accepted)
        done = dhocl_backup(original, tmp_path / "last copy")
        poster.stop.set()
        poster.join()
        process.kill()
    shutil.rmtree(original)
    assert done.returncode == 0, done.stderr
    for copy in range(4):
        served = ServedModel.load(tmp_path / f"copy{copy}" / "checkpoints")
        with closing(journal.Journal(tmp_path / f"copy{copy}" / "journal.sqlite")) as entries:
            assert served is not None
            assert entries.whole(served.applied)
            assert entries.last >= before[copy]
    folder = tmp_path / "last copy"
    assert {path.stat().st_mode & 0o077 for path in [folder, *folder.rglob("*")]} == {0}
    with started("--model", folder) as (process, client):
        learned = settled(client)["learned"]
        assert learned >= before[-1]
        assert max(post(client, examples(3, seed=10_001)).json()["accepted"]) == learned + 3, "numbers go on"
        settled(client)
        process.terminate()
        assert process.wait() == 0
    assert sorted(stored(folder).values()) == [1] * (learned + 3), "each once"


def work(service: Any, seed: int) -> None:
    service.journal.append([as_post(examples(4, seed))])
    while service.engine.turn():
        pass
    service.engine.save()


def test_a_journal_that_is_pruned_meanwhile_is_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "IMAGES", 1)
    service, copy, copies = opened(tmp_path / "m"), copying._copy, []
    work(service, 0)

    def slow(*given: Any) -> None:
        if not copies:
            for seed in range(1, 4):
                work(service, seed)
        copies.append(given)
        copy(*given)

    monkeypatch.setattr(copying, "_copy", slow)
    assert backup(tmp_path / "m", tmp_path / "copy") == 16
    assert len(copies) == 2
    leave(service)
    again = opened(tmp_path / "copy")
    assert again.engine.snapshot.learned == 16
    leave(again)


def test_writes_of_the_service_do_not_start_the_copy_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PAGES", 1)
    service, done = opened(tmp_path / "m"), []
    work(service, 0)

    def write(pages: int, _: int) -> None:
        done.append(pages)
        assert len(done) < 1000, "it starts anew for ever"
        service.journal.append([Post("revision", [{"kind": "unlink"}])])

    assert backup(tmp_path / "m", tmp_path / "copy", write) == 4
    assert done == list(range(1, len(done) + 1)), "each page once"
    assert len(done) > 5
    leave(service)


def test_a_copy_that_never_fits_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(opened(tmp_path / "m"))
    monkeypatch.setattr(journal.Journal, "whole", lambda *_: False)
    with pytest.raises(InputError, match="changes faster than it can be copied"):
        backup(tmp_path / "m", tmp_path / "copy")
    assert not list((tmp_path / "copy").iterdir())


def test_the_newest_checkpoint_may_be_damaged(tmp_path: Path) -> None:
    service = opened(tmp_path / "m")
    work(service, 0)
    work(service, 1)
    leave(service)
    newest = max((tmp_path / "m" / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    assert backup(tmp_path / "m", tmp_path / "copy") == 8
    assert newest.exists(), "the original is not changed"
    again = opened(tmp_path / "copy")
    while again.engine.turn():
        pass
    assert again.engine.snapshot.learned == 8
    leave(again)


def test_a_saved_classifier_and_a_run(tmp_path: Path, finished: Record) -> None:
    classifier = Classifier(levels=["kind", "species"], backbone="tiny", image_size=32)
    classifier.learn(pictures([0, 1, 2, 3], np.random.default_rng(0)), [("bird", "kind")] * 4)
    classifier.save(tmp_path / "c")
    assert backup(finished.folder, tmp_path / "run") == 0
    assert ServedModel.load(tmp_path / "run" / "checkpoints") is not None
    done = dhocl_backup(tmp_path / "c", tmp_path / "copy")
    assert (done.returncode, "entries" in done.stdout) == (0, False), done.stderr
    shutil.rmtree(tmp_path / "c")
    with started("--model", tmp_path / "copy") as (_, client):
        image = {"image": ("x", examples(1)[0][0])}
        (found,) = client.post("/predict", files=image).json()["predictions"]
    assert found["answer"]["name"] == "bird"


@pytest.mark.parametrize(
    ("model", "into", "message"),
    [
        ("none", "new", "none has no model"),
        ("m", "full", "full is not empty"),
        ("m", "file", "file is not empty"),
        ("m", "m", "m is not empty"),
        ("lost", "new", "lost has no journal.sqlite, which its checkpoint needs"),
        ("garbage", "new", "journal.sqlite can not be copied"),
    ],
)
def test_mistakes_are_one_line(
    model: str,
    into: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = opened(tmp_path / "m")
    work(service, 0)
    leave(service)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    (tmp_path / "file").touch()
    for name in ("lost", "garbage"):
        shutil.copytree(tmp_path / "m" / "checkpoints", tmp_path / name / "checkpoints")
    (tmp_path / "garbage" / "journal.sqlite").write_bytes(b"x" * 10_000)
    monkeypatch.chdir(tmp_path)
    code, _, errors = command(capsys, monkeypatch, "backup", model, into)
    assert (code, errors.count("\n")) == (2, 1), errors
    assert message in errors
    assert into != "new" or not list(tmp_path.glob("new/*"))


def test_a_copy_that_was_interrupted_can_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = opened(tmp_path / "m")
    work(service, 0)
    leave(service)
    monkeypatch.setattr(copying, "write_atomically", lambda *_: sys.exit(9))
    monkeypatch.setattr(copying, "_clear", lambda _: None)  # as if killed
    with pytest.raises(SystemExit):
        backup(tmp_path / "m", tmp_path / "copy")
    assert sqlite3.connect(tmp_path / "copy" / "journal.sqlite").execute("SELECT count(*) FROM entries").fetchone() == (
        4,
    )
    with pytest.raises(InputError, match="has a journal, but no intact checkpoint"):
        opened(tmp_path / "copy")
