"""A folder that is renamed, or whose files are deleted, while the service runs; and who may read it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from dhocl.service.served import ServedModel
from tests.helpers.serving import NEW, as_post, command, examples, leave, opened, post, settled, started, until

OFTEN = ["--checkpoint-every", "8", "--method", "er"]


def failed(client: httpx.Client) -> bool:
    return client.get("/health").status_code == 503


def test_a_renamed_folder_is_left_as_it_is_and_opens_again(tmp_path: Path) -> None:
    folder, moved = tmp_path / "m", tmp_path / "moved"
    with started("--model", folder, *NEW, *OFTEN) as (process, client):
        for seed in range(3):
            post(client, examples(40, seed))
        settled(client)
        folder.rename(moved)
        assert post(client, examples(40, seed=3)).status_code == 503
        until(lambda: failed(client), seconds=30)
        assert client.get("/metrics").json()["learned"] == 120, "it still answers"
        process.terminate()
        assert process.wait() == 0
    assert not folder.exists(), "nothing is written to the old place"
    with started("--model", moved) as (_, client):
        numbers = settled(client)
        assert (numbers["accepted"], numbers["learned"], numbers["refused"]) == (120, 120, 0)


def test_a_folder_renamed_while_it_learns_loses_nothing(tmp_path: Path) -> None:
    folder, moved = tmp_path / "m", tmp_path / "moved"
    accepted = 0
    with started("--model", folder, *NEW, *OFTEN) as (process, client):
        for seed in range(8):
            accepted += 40 * (post(client, examples(40, seed)).status_code == 202)
            if seed == 4:
                folder.rename(moved)
        until(lambda: failed(client), seconds=30)
        process.terminate()
        assert process.wait() == 0
    assert accepted == 200
    with started("--model", moved) as (_, client):
        numbers = settled(client)
        assert (numbers["accepted"], numbers["learned"], numbers["refused"]) == (200, 200, 0)


@pytest.mark.parametrize("part", ["checkpoints", "journal.sqlite"])
def test_parts_that_are_moved_away_stop_it(tmp_path: Path, part: str) -> None:
    folder, aside = tmp_path / "m", tmp_path / "aside"
    with started("--model", folder, *NEW, *OFTEN) as (process, client):
        post(client, examples(40))
        settled(client)
        shutil.move(folder / part, aside)
        until(lambda: failed(client), seconds=30)
        assert post(client, examples(1)).status_code == 503
        process.terminate()
        assert process.wait() == 0
    assert not (folder / part).exists()
    shutil.move(aside, folder / part)
    with started("--model", folder) as (_, client):
        assert settled(client)["learned"] == 40


def test_without_the_lock_file_a_second_service_is_still_refused(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    with started("--model", folder, *NEW) as (_, client):
        (folder / "lock").unlink()
        done = subprocess.run(command("--model", folder, "--port", 0), capture_output=True, text=True)
        assert (done.returncode, "in use by another process" in done.stderr) == (2, True)
        assert client.get("/health").status_code == 200


def test_only_its_owner_may_read_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    old = os.umask(0o022)
    try:
        with started("--model", folder, *NEW, *OFTEN) as (_, client):
            post(client, examples(40))
            settled(client)
            assert modes(folder) == {0o700, 0o600}
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)  # as an earlier version left it
        with started("--model", folder):
            assert modes(folder) == {0o700, 0o600}
    finally:
        os.umask(old)


def modes(folder: Path) -> set[int]:
    """Permissions of a folder and all in it; that of a file if it has one of a folder."""
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in found.items()), found
    return set(found.values())


def test_a_folder_moved_while_a_checkpoint_is_written_is_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, state_dict = opened(tmp_path / "m"), ServedModel.state_dict
    service.journal.append([as_post(examples(4))])
    service.engine.turn()

    def moved(served: ServedModel) -> dict[str, Any]:
        (tmp_path / "m").rename(tmp_path / "moved")
        return state_dict(served)

    monkeypatch.setattr(ServedModel, "state_dict", moved)
    service.engine.save()
    assert not (tmp_path / "m").exists()
    leave(service)
    again = opened(tmp_path / "moved")
    assert again.engine.turn(), "the entries are applied again"
    leave(again)
