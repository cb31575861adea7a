from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest

from dhocl.core.errors import InputError
from dhocl.data.archive import locate
from tests.helpers.fakes import KINDS, add, pack

FILES = {"one": b"1" * 5000, "sub/two": bytes(range(256)) * 40, "three": b""}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_asked_files_and_writes_nothing(tmp_path: Path, kind: str) -> None:
    pack(FILES, tmp_path / "d", "set", kind)
    before = sorted((tmp_path / "d").rglob("*"))
    asked = ("one", "sub/two")
    assert dict(locate(tmp_path / "d", "set", "").read(asked)) == {name: FILES[name] for name in asked}
    assert sorted((tmp_path / "d").rglob("*")) == before


def test_a_leading_dot_and_a_longer_archive_name_are_accepted(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "set_small.tar.xz", "w:xz") as tar:
        add(tar, "./set/one", b"1")
    assert dict(locate(tmp_path, "set", "").read(["one"])) == {"one": b"1"}


def test_the_stamp_follows_the_files(tmp_path: Path) -> None:
    folder = pack(FILES, tmp_path, "set", "folder")
    archive = locate(tmp_path, "set", "")
    before = archive.stamp(["one"])
    (folder / "three").write_bytes(b"not asked for")
    assert archive.stamp(["one"]) == before
    (folder / "one").write_bytes(b"changed")
    assert archive.stamp(["one"]) != before


def test_no_folder_was_given() -> None:
    with pytest.raises(InputError, match=r"`data` must be a folder.*set/.*set\.tar\.gz.*example\.org"):
        locate(None, "set", "example.org")


def test_the_folder_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere is not a folder"):
        locate(tmp_path / "nowhere", "set", "example.org")


def test_the_folder_holds_something_else(tmp_path: Path) -> None:
    message = r"holds neither set/ nor set\.tar\.gz \(\.tgz, \.tar\.xz, \.tar\): download it from example\.org"
    with pytest.raises(InputError, match=message):
        locate(tmp_path, "set", "example.org")


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_named(tmp_path: Path, kind: str) -> None:
    pack(FILES, tmp_path, "set", kind)
    with pytest.raises(InputError, match="lacks set/four"):
        list(locate(tmp_path, "set", "").read(["one", "four"]))


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5])
def test_a_truncated_archive_is_named(tmp_path: Path, kind: str, kept: float) -> None:
    archive = pack({"one": bytes(range(256)) * 200, **FILES}, tmp_path, "set", kind)
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(InputError, match=rf"set\{kind}.*download it again") as error:
        list(locate(tmp_path, "set", "").read(list(FILES)))
    assert "\n" not in str(error.value)


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz").write_text("<html>not found</html>")
    with pytest.raises(InputError, match=r"set\.tar\.gz is damaged, truncated or no tar archive") as error:
        list(locate(tmp_path, "set", "").read(["one"]))
    assert "\n" not in str(error.value)


LINK, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("../evil", {}),
        ("set/../../evil", {}),
        ("/tmp/evil", {}),
        ("set/link", {"type": LINK, "linkname": "../../evil"}),
        ("set/link", {"type": LINK, "linkname": "/etc/passwd"}),
        ("set/link", {"type": HARD, "linkname": "../evil"}),
    ],
)
def test_members_that_leave_the_archive_are_refused(tmp_path: Path, name: str, how: dict[str, object]) -> None:
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        add(tar, name, **how)
        add(tar, "set/one", b"1")
    with pytest.raises(InputError, match=rf"set\.tar is refused: its member '{name}'"):
        list(locate(tmp_path, "set", "").read(["one"]))


def test_links_that_stay_inside_are_passed_over(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        add(tar, "set/sub/link", type=LINK, linkname="../one")
        add(tar, "set/one", b"1")
    assert dict(locate(tmp_path, "set", "").read(["one"])) == {"one": b"1"}


def test_a_listed_name_can_not_leave_the_folder(tmp_path: Path) -> None:
    pack(FILES, tmp_path, "set", "folder")
    (tmp_path / "secret").write_text("x")
    with pytest.raises(InputError, match=r"'\.\./secret', which is outside"):
        list(locate(tmp_path, "set", "").read(["../secret"]))


@pytest.mark.parametrize("kind", KINDS)
def test_altered_content_is_named_with_both_sums(tmp_path: Path, kind: str) -> None:
    pack(FILES, tmp_path, "set", kind)
    good = {name: hashlib.md5(content).hexdigest() for name, content in FILES.items()}
    archive = locate(tmp_path, "set", "")
    assert dict(archive.read(list(FILES), good)) == FILES
    with pytest.raises(InputError, match=f"one in .* expected md5 {'0' * 32}, found {good['one']}"):
        list(archive.read(list(FILES), good | {"one": "0" * 32}))
