"""Damaged journals, checkpoints and run files: one line each, whatever is wrong with them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from dhocl import Classifier, InputError
from dhocl.core import checkpoint
from dhocl.service.service import Service
from tests.helpers.serving import as_post, examples, leave, opened, running, until


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service that has learned 10 observations since its only checkpoint, and has 10 more in its queue."""
    folder = tmp_path_factory.mktemp("intact") / "m"
    service = opened(folder)
    for seed in range(2):
        service.journal.append([as_post(examples(10, seed))])
        if seed == 0:
            service.engine.turn()
    leave(service)
    return folder


@pytest.fixture
def folder(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact, tmp_path / "m"))


def one_line(error: BaseException) -> bool:
    return isinstance(error, InputError) and "\n" not in str(error) and 20 < len(str(error)) < 400


def opens(folder: Path) -> Service | None:
    """The service, or None if it says in a line why not."""
    try:
        return opened(folder)
    except InputError as error:
        return None if one_line(error) else pytest.fail(f"more than a line: {error}")


def edited(*statements: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        db = sqlite3.connect(folder / "journal.sqlite")
        for statement in statements:
            db.execute(statement)
        db.commit()
        db.close()

    return edit


def a_folder(folder: Path) -> None:
    (folder / "journal.sqlite").unlink()
    (folder / "journal.sqlite").mkdir()


BEFORE_IT_STARTS = {
    "no entries": edited("DROP TABLE entries"),
    "no images": edited("DROP TABLE images"),
    "no totals": edited("DROP TABLE totals"),
    "an empty total": edited("DELETE FROM totals"),
    "another table": edited("DROP TABLE entries", "CREATE TABLE entries (number INTEGER, state TEXT)"),
    "a missing entry": edited("DELETE FROM entries WHERE number = 15"),
    "a missing image": edited("DELETE FROM images WHERE number = 15"),
    "a folder": a_folder,
}


@pytest.mark.parametrize("what", BEFORE_IT_STARTS)
def test_a_journal_that_can_not_be_used(folder: Path, what: str) -> None:
    BEFORE_IT_STARTS[what](folder)
    assert opens(folder) is None


WHILE_IT_RUNS = {
    "content is no JSON": edited("UPDATE entries SET content = '{' WHERE number = 15"),
    "outcome is no JSON": edited("UPDATE entries SET outcome = '{' WHERE number = 5"),
    "content is a list": edited("UPDATE entries SET content = '[]' WHERE number = 5"),
    "an image that was learned is none": edited("UPDATE images SET pixels = x'00' WHERE number = 5"),
    "a class without a name": edited("UPDATE entries SET content = '{}' WHERE number = 5"),
}


@pytest.mark.parametrize("what", WHILE_IT_RUNS)
def test_a_damaged_entry_stops_it_and_nothing_is_refused(
    folder: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    WHILE_IT_RUNS[what](folder)
    with running(folder) as client:
        until(lambda: client.get("/health").status_code == 503, seconds=60)
        assert client.get("/observations/recent?n=20").status_code in (200, 503)
        assert client.get("/metrics").json()["refused"] == 0
    assert "learning has stopped" in caplog.text
    assert "Traceback" not in caplog.text
    db = sqlite3.connect(folder / "journal.sqlite")
    assert db.execute("SELECT count(*) FROM entries WHERE state = 'refused'").fetchone() == (0,)
    db.close()


@pytest.mark.parametrize("seed", range(12))
def test_a_journal_with_random_damage(folder: Path, seed: int) -> None:
    """It is opened or refused in a line; the engine works or stops. No other exception is raised."""
    rng = np.random.default_rng(seed)
    path = folder / "journal.sqlite"
    content = bytearray(path.read_bytes())
    if seed % 3 == 0:
        del content[int(rng.integers(0, len(content))) :]
    for _ in range(int(rng.integers(1, 40))) if content else ():
        content[int(rng.integers(0, len(content) if seed % 2 else min(len(content), 8192)))] = int(rng.integers(0, 256))
    path.write_bytes(content)
    if service := opens(folder):
        service.engine.start()
        until(lambda: not service.engine.alive or service.journal.queued == 0, seconds=60)
        service.engine.stop()
        leave(service)


def stored(folder: Path, content: bytes, name: str | None = None) -> None:
    """Make this the only checkpoint, by default under the name that its hash requires."""
    for old in (folder / "checkpoints").iterdir():
        old.unlink()
    (folder / "checkpoints" / (name or f"000000009-{checkpoint._hash(content)}.safetensors")).write_bytes(content)


def packed(state: Any, **more: torch.Tensor) -> bytes:
    return safetensors.torch.save(more, metadata={"format": checkpoint.FORMAT, "state": json.dumps(state)})


CHECKPOINTS = {
    "empty": b"",
    "garbage": bytes(range(256)),
    "no metadata": safetensors.torch.save({"a": torch.zeros(1)}),
    "no state": safetensors.torch.save({}, metadata={"format": checkpoint.FORMAT}),
    "no JSON": safetensors.torch.save({}, metadata={"format": checkpoint.FORMAT, "state": "{"}),
    "a number": packed(3),
    "another entry": packed({"list": []}),
    "a missing tensor": packed({"dict": {"model": {"tensor": "gone"}}}),
    "no model": packed({"dict": {}}),
    "an empty model": packed({"dict": {"model": {"dict": {}}, "batch": {"json": 32}}}),
}


@pytest.mark.parametrize("what", CHECKPOINTS)
def test_a_checkpoint_that_can_not_be_used(folder: Path, what: str) -> None:
    stored(folder, CHECKPOINTS[what])
    assert opens(folder) is None
    with pytest.raises(InputError) as found:
        Classifier.load(folder)
    assert one_line(found.value)


def without(state: dict[str, Any], *path: str) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {key: value for key, value in state.items() if key != first}
    return state | {first: without(state[first], *rest)}


@pytest.mark.parametrize(
    "path",
    [("batch",), ("service", "applied"), ("service", "progress", "seen"), ("model", "learner"), ("model", "curator")],
)
def test_a_checkpoint_that_lacks_something(folder: Path, path: tuple[str, ...]) -> None:
    state = checkpoint.load_newest(folder / "checkpoints")
    assert state is not None
    checkpoint.save(folder / "checkpoints", without(state, *path))
    assert opens(folder) is None


@pytest.mark.parametrize("name", ["1.safetensors", "12345678x.safetensors", "000000009.safetensors"])
def test_files_with_other_names_are_no_checkpoints(folder: Path, name: str) -> None:
    (folder / "checkpoints" / name).write_bytes(b"")
    service = opened(folder)
    service.engine.turn()
    service.engine.save()
    leave(service)
    assert (folder / "checkpoints" / name).exists()


def test_checkpoints_that_are_no_folder(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").write_bytes(b"")
    assert opens(folder) is None


def test_a_checkpoint_that_is_a_folder(folder: Path) -> None:
    newest = next((folder / "checkpoints").iterdir())
    newest.unlink()
    newest.mkdir()
    assert opens(folder) is None
