from __future__ import annotations

import hashlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from dhocl.cli import main
from dhocl.core.errors import InputError
from dhocl.data import DATASETS
from dhocl.data import download as module
from dhocl.data.download import OFFERS, File, Offer, download, find_offer

CONTENT = np.random.default_rng(0).bytes(3_000_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Gives /set.tar.gz, as whole or in parts as it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.ranges = True  # honoured
        self.breaks_after: int | None = None  # bytes
        self.silent = 0.0  # seconds before an answer
        self.asked: list[str | None] = []  # the ranges

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/set.tar.gz"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers["Range"]
        self.server.asked.append(wanted)
        time.sleep(self.server.silent)
        if self.path != "/set.tar.gz":
            self.send_error(404)
            return
        content = self.server.content
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if wanted and self.server.ranges else 200)
        if wanted and self.server.ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = len(content) if self.server.breaks_after is None else start + self.server.breaks_after
        self.wfile.write(content[start:end])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        monkeypatch.setitem(OFFERS, "cifar100", Offer((File(running.url, MD5),), "for tests"))
        yield running
        running.shutdown()


def bring(folder: Path) -> bytes:
    (file,) = download("cifar100", folder)
    assert file == folder / "set.tar.gz"
    assert [other.name for other in folder.iterdir()] == ["set.tar.gz"], "nothing else is left"
    return file.read_bytes()


def test_a_file_comes_whole_into_a_folder_that_is_made(server: Server, tmp_path: Path) -> None:
    assert bring(tmp_path / "new" / "data") == CONTENT
    assert server.asked == [None]


def test_a_download_that_broke_goes_on_where_it_was(server: Server, tmp_path: Path) -> None:
    server.breaks_after = 1_100_000
    for _ in range(2):
        with pytest.raises(
            InputError, match=r"the connection broke while set\.tar\.gz was downloaded: run the command"
        ):
            download("cifar100", tmp_path)
    arrived = (tmp_path / "set.tar.gz.part").read_bytes()
    assert arrived == CONTENT[: len(arrived)]
    assert len(arrived) == 2_199_999
    server.breaks_after = None
    assert bring(tmp_path) == CONTENT
    assert server.asked == [None, "bytes=1099999-", "bytes=2199998-"]


def test_a_server_that_only_gives_the_whole_is_begun_anew(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "set.tar.gz.part").write_bytes(b"x" * 2000)
    assert bring(tmp_path) == CONTENT


def test_killed_after_the_last_byte_it_is_only_checked(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz.part").write_bytes(CONTENT)
    assert bring(tmp_path) == CONTENT
    assert server.asked == [f"bytes={len(CONTENT) - 1}-"]


def test_a_wrong_sum_is_told_and_what_came_deleted(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[::-1]
    found = hashlib.md5(CONTENT[::-1]).hexdigest()
    with pytest.raises(InputError, match=rf"not the published file \(expected md5 {MD5}, found {found}\): it was del"):
        download("cifar100", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_beginning_that_is_of_another_file_is_found_out_and_comes_right_the_next_time(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "set.tar.gz.part").write_bytes(b"x" * 2000)
    with pytest.raises(InputError, match="not the published file"):
        download("cifar100", tmp_path)
    assert bring(tmp_path) == CONTENT


def test_a_beginning_longer_than_the_file_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz.part").write_bytes(CONTENT + b"xx")
    with pytest.raises(InputError, match=r"set\.tar\.gz\.part is longer than http.*: delete it"):
        download("cifar100", tmp_path)


def test_what_is_there_is_checked_and_not_asked_for(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz").write_bytes(CONTENT)
    assert bring(tmp_path) == CONTENT
    (tmp_path / "set.tar.gz").write_bytes(b"other")
    with pytest.raises(InputError, match=r"not the published file .*: delete .*set\.tar\.gz, run"):
        download("cifar100", tmp_path)
    assert (tmp_path / "set.tar.gz").read_bytes() == b"other", "the user's own is not deleted"
    assert server.asked == []


def test_without_a_published_sum_the_file_is_taken_as_it_is(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OFFERS, "cifar100", Offer((File(server.url, None),), ""))
    assert bring(tmp_path) == CONTENT


def test_a_file_that_is_gone_is_told(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OFFERS, "cifar100", Offer((File(server.url + "x", MD5),), ""))
    with pytest.raises(InputError, match=r"set\.tar\.gzx returned 404 Not Found"):
        download("cifar100", tmp_path)


def test_a_silent_server_is_not_waited_for(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.silent = 3
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    with pytest.raises(InputError, match=r"can not reach 127\.0\.0\.1:\d+ \(timed out\)"):
        download("cifar100", tmp_path)


def test_a_full_disk_is_told_before_anything_is_written(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 5, 5))
    with pytest.raises(InputError, match=r"needs 0\.0 GB, but .*new has 0\.0 GB free"):
        download("cifar100", tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def command(*arguments: str) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["dhocl", "download", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
    return stop.value.code


def test_the_command_says_what_to_do_next(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(OFFERS, "inaturalist2018", Offer((File(server.url, MD5),), "for tests", "set.tar.gz"))
    assert command("inaturalist2018", "--data", str(tmp_path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Terms of inaturalist2018: for tests.",
        f"{tmp_path}/set.tar.gz is complete.",
        f"Extract it: tar -xzf {tmp_path}/set.tar.gz -C {tmp_path}",
        f"Then: dhocl run --dataset inaturalist2018 --data {tmp_path}",
    ]


def test_without_a_network_it_says_so_at_once_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Server() as closed:
        url = closed.url
    monkeypatch.setitem(OFFERS, "cub200", Offer((File(url, MD5),), "for tests"))
    began = time.monotonic()
    assert command("cub200", "--data", str(tmp_path / "new")) == 2
    assert time.monotonic() - began < 5
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "can not reach 127.0.0.1" in errors
    assert f"copy {url} to {tmp_path / 'new'} yourself" in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", DATASETS)
def test_each_data_set_is_offered_or_its_whereabouts_told(name: str) -> None:
    if name in OFFERS:
        for part in find_offer(name).files:
            assert part.url.startswith("https://")
            assert part.md5 is None or len(bytes.fromhex(part.md5)) == 16
    else:
        message = (
            "request access to ImageNet at https://image-net.org"
            if "imagenet" in name
            else "can not be downloaded: choose one of cifar"
        )
        with pytest.raises(InputError, match=message):
            find_offer(name)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is a file: name a folder"):
        download("cifar100", tmp_path / "file")
