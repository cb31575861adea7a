"""Folders of earlier versions: they open, predict what they predicted, and go on learning.

tests/data/folders has some for each pair of `checkpoint.FORMAT` and the journal's `VERSION`, named after them and after
the method, if that is not `amber`. In tests/data/queued, the service was killed before it applied its last entries.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dhocl import Classifier, InputError
from dhocl.core import checkpoint
from tests.helpers.folder import CURRENT, EXAM, METHODS, expected, write
from tests.helpers.serving import TREE, applied, encoded, examples, names, opened, post, started, until

KEPT = Path(__file__).parents[1] / "data" / "folders"
FOLDERS = sorted(KEPT.iterdir())
QUEUED = sorted((KEPT.parent / "queued").iterdir())


@pytest.fixture(params=FOLDERS, ids=lambda path: path.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(request.param, tmp_path / "m"))


def assert_as_before(folder: Path, found: list[dict[str, float]]) -> None:
    before = json.loads((folder / "expected.json").read_text())
    assert len(found) == len(before) == len(EXAM)
    for now, then in zip(found, before, strict=True):
        assert now == pytest.approx(then, abs=1e-3)


def test_it_is_served_and_learns_on(folder: Path) -> None:
    with started("--model", folder) as (process, client):
        assert names(client) == TREE | {"bird": None, "fish": None}
        files = [("image", ("x.png", encoded(image.permute(1, 2, 0).numpy()))) for image in EXAM]
        assert_as_before(folder, expected(client.post("/predict", files=files).json()["predictions"]))
        assert client.get("/entries/29").json()["state"] == "refused", "the journal is there"
        learned = client.get("/metrics").json()["learned"]
        assert post(client, examples(10, seed=5)).json()["accepted"] == list(range(30, 40))
        until(lambda: client.get("/metrics").json()["learned"] == learned + 10)
        process.terminate()
        assert process.wait() == 0
    assert Classifier.load(folder).predict(EXAM[:1]), "and what it wrote opens, too"


def test_it_is_loaded_and_learns_on(folder: Path) -> None:
    classifier = Classifier.load(folder)
    before = json.loads((folder / "expected.json").read_text())
    assert [list(found.path.values()) for found in classifier.predict(EXAM)] == [list(path) for path in before]
    classifier.learn(EXAM[:4], [("wren", "species")] * 4)
    assert "wren" in [label.name for label in classifier.taxonomy.labels]


@pytest.mark.parametrize("kept", QUEUED, ids=lambda path: path.name)
def test_queued_entries_are_applied(kept: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(kept, tmp_path / "m")
    with started("--model", folder) as (_, client):
        assert applied(client, range(30, 37)) == ["done"] * 7
        until(lambda: client.get("/entries/36").json()["erased"])
        found = {each["number"]: (each["name"], each["rank"]) for each in client.get("/observations/recent").json()}
        assert found.items() >= {number: given[1:] for number, given in enumerate(examples(6, seed=5)[1:], 31)}.items()
        assert 30 not in found


def test_the_current_version_is_among_them() -> None:
    assert METHODS.keys() <= {path.name for path in FOLDERS}, "python -m tests.helpers.folder tests/data"
    assert CURRENT in [path.name for path in QUEUED], "python -m tests.helpers.folder tests/data"


@pytest.mark.parametrize("name", METHODS)
def test_the_kept_folder_can_be_made_again(tmp_path: Path, name: str) -> None:
    write(tmp_path / "m", *METHODS[name])
    assert_as_before(tmp_path / "m", json.loads((KEPT / name / "expected.json").read_text()))
    assert sum(path.stat().st_size for path in (tmp_path / "m").rglob("*") if path.is_file()) < 500_000


def newer_checkpoint(folder: Path) -> None:
    (path,) = (folder / "checkpoints").iterdir()
    state = checkpoint.load(path)
    path.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", "999")
        checkpoint.save(folder / "checkpoints", state)


def newer_journal(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as entries:
        entries.execute("PRAGMA user_version = 999")


@pytest.mark.parametrize("change", [newer_checkpoint, newer_journal])
def test_a_folder_of_a_later_version_is_refused_and_kept(tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = Path(shutil.copytree(KEPT / CURRENT, tmp_path / "m"))
    change(folder)
    before = sorted(path.name for path in (folder / "checkpoints").iterdir())
    with pytest.raises(InputError, match="written by another version of dhocl"):
        opened(folder)
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == before
