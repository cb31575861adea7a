from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dhocl.core import checkpoint
from dhocl.core.errors import InputError
from dhocl.core.files import locked, write_atomically


def test_file_and_folder_are_on_disk_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync = [], os.fsync

    def recorded(handle: int) -> None:
        named = (tmp_path / "a").exists()
        synced.append(("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file", named))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    write_atomically(tmp_path / "a", b"content")
    assert synced == [("file", False), ("folder", True)], "the content before the rename, the rename after it"
    assert (tmp_path / "a").read_bytes() == b"content"


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "a", b"old")

    def full(handle: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(tmp_path / "a", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old"}


OTHER = """
import sys
from pathlib import Path
from dhocl.core.files import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_folder_belongs_to_one_process_until_it_ends(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, tmp_path / "m"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"
    with pytest.raises(InputError, match="in use by another process"), locked(tmp_path / "m"):
        pass
    other.kill()
    other.communicate()
    with locked(tmp_path / "m"):
        pass


def test_the_content_may_be_written_by_a_function(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new" / "a", lambda file: file.write(b"content"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == {"a": b"content"}

    def interrupted(file: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "new" / "a", interrupted)
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == {"a": b"content"}


def test_a_checkpoint_that_is_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of a running service lists the files, and the service deletes one before it is opened."""
    checkpoint.save(tmp_path, {"step": 1})
    listed, gone = checkpoint.newest_first, [tmp_path / "000000009-0.safetensors"]
    monkeypatch.setattr(checkpoint, "newest_first", lambda folder: [*gone, *listed(folder)])
    read = Path.read_bytes

    def replaced(path: Path) -> bytes:
        if path in gone:
            gone.clear()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", replaced)
    assert checkpoint.load_newest(tmp_path) == {"step": 1}


def test_a_checkpoint_that_is_replaced_after_its_hash_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, load = checkpoint.save(tmp_path, {"step": 1}), checkpoint.load

    def replaced(path: Path) -> object:
        if path == first:
            first.unlink()
            checkpoint.save(tmp_path, {"step": 2})
        return load(path)

    monkeypatch.setattr(checkpoint, "load", replaced)
    assert checkpoint.load_newest(tmp_path) == {"step": 2}
