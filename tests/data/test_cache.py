from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from dhocl.data import cache

MADE = (np.arange(600).reshape(20, 30), np.array(["é", "long"]))


def fetch(made: list[int]) -> tuple[np.ndarray, ...]:
    def build() -> tuple[np.ndarray, ...]:
        made.append(1)
        return MADE

    return cache.arrays("set-abc", ("a", "b"), build)


def test_built_once_and_mapped_after(own_cache: Path) -> None:
    made: list[int] = []
    for _ in range(3):
        got = fetch(made)
        assert all(np.array_equal(one, other) for one, other in zip(got, MADE, strict=True))
        assert all(isinstance(array, np.memmap) for array in got)
    assert made == [1]
    assert sorted(file.name for file in own_cache.iterdir()) == ["set-abc.a.npy", "set-abc.b.npy"]


@pytest.mark.parametrize("damage", ["gone", "empty", "truncated", "header", "text", "zip"])
def test_a_damaged_file_is_made_anew(own_cache: Path, damage: str) -> None:
    made: list[int] = []
    fetch(made)
    file = own_cache / "set-abc.a.npy"
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    elif damage == "zip":
        np.savez(own_cache / "x.npz", a=MADE[0])
        file.write_bytes((own_cache / "x.npz").read_bytes())
    else:
        damaged = {
            "empty": b"",
            "truncated": content[:-1],
            "header": bytes(128) + content[128:],
            "text": b"hello",
        }
        file.write_bytes(damaged[damage])
    assert np.array_equal(fetch(made)[0], MADE[0])
    assert made == [1, 1]
    assert file.read_bytes() == content


def test_an_unwritable_folder_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DHOCL_CACHE", str(tmp_path / "file" / "below"))
    made: list[int] = []
    with caplog.at_level(logging.WARNING):
        assert all(map(np.array_equal, fetch(made), MADE))
        assert all(map(np.array_equal, fetch(made), MADE))
    assert made == [1, 1]
    assert "not cached" in caplog.text


def test_a_failed_write_leaves_nothing_behind(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert all(map(np.array_equal, fetch([]), MADE))
    assert list(own_cache.iterdir()) == []


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DHOCL_CACHE", "/here")
    monkeypatch.setenv("XDG_CACHE_HOME", "/there")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache.folder() == Path("/here")
    monkeypatch.delenv("DHOCL_CACHE")
    assert cache.folder() == Path("/there/dhocl")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path("/home/me/.cache/dhocl")


def test_the_key_depends_on_every_determinant() -> None:
    keys = {cache.key("a", 1, "x"), cache.key("a", 1, "y"), cache.key("a", 2, "x"), cache.key("b", 1, "x")}
    assert len(keys) == 4
    assert cache.key("a", 1, "x") in keys
