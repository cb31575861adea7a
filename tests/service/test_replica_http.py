"""A replica that follows its writer over HTTP: what a writer sends, and what it may answer."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dhocl.core import checkpoint
from dhocl.core.errors import InputError
from dhocl.service import following
from dhocl.service.bodies import Limits
from dhocl.service.following import UnavailableError, Writer
from dhocl.service.publishing import Shelf
from dhocl.service.replica import Replica
from tests.helpers.replicas import EACH, TOKEN, saved
from tests.helpers.serving import as_post, examples, running


def test_the_writer_sends_its_newest_intact_checkpoint(tmp_path: Path) -> None:
    with running(tmp_path / "m", token=TOKEN, pace=EACH) as client:
        saved(client, 0)
        newest, _ = checkpoint.newest_first(tmp_path / "m" / "checkpoints")
        answer = client.get("/checkpoint")
        assert answer.content == newest.read_bytes()
        assert (answer.headers["etag"], answer.headers[following.NEWEST]) == (f'"{newest.stem}"', "24")
        again = client.get("/checkpoint", headers={"If-None-Match": f'"x", W/{answer.headers["etag"]}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", answer.headers["etag"])
        assert again.headers[following.NEWEST] == "24"
        assert client.get("/checkpoint", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/metrics", headers={"Authorization": ""}).status_code == 200, "reading is open"

        look = Writer(str(client.base_url), TOKEN).look("")
        assert look.found is not None
        assert (look.found.name, look.newest) == (newest.stem, 24)
        assert Writer(str(client.base_url), TOKEN).look(newest.stem) == (None, 24)
        with pytest.raises(InputError, match="needs its token: give --token-file"):
            Writer(str(client.base_url), "another-long-token").look("")
    newest, older = checkpoint.newest_first(tmp_path / "m" / "checkpoints")
    newest.write_bytes(b"damaged")
    found = Shelf(tmp_path / "m" / "checkpoints").open()
    assert found is not None
    with found[1] as file:
        assert (found[0], file.read()) == (older.stem, older.read_bytes())


class Hostile(BaseHTTPRequestHandler):
    """Answers as `kind` says."""

    kind = ""
    whole = b""
    name = ""
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.kind == "redirect":
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(500 if self.kind == "broken" else 200)
        if self.kind != "page":
            self.send_header("ETag", f'W/"{self.name}"')
        self.send_header("Content-Length", str(len(self.whole)))
        self.end_headers()
        content = self.whole[:-50] if self.kind == "half" else self.whole
        if self.kind == "changed":
            content = content[:-1] + bytes([content[-1] ^ 1])
        self.wfile.write(content)
        self.close_connection = True

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def hostile(taught_folder: Path) -> Iterator[str]:
    newest = checkpoint.newest_first(taught_folder / "checkpoints")[0]
    Hostile.whole, Hostile.name, Hostile.asked = newest.read_bytes(), newest.stem, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        ("half", UnavailableError, "damaged or not complete|can not be reached"),
        ("changed", UnavailableError, "damaged or not complete"),
        ("broken", UnavailableError, "status 500"),
        ("page", InputError, "sends no checkpoints"),
        ("redirect", InputError, "redirects to http://localhost"),
        ("large", InputError, "more than 1,000 bytes"),
        ("slow", UnavailableError, "too slowly"),
    ],
)
def test_what_a_writer_may_answer(
    hostile: str, monkeypatch: pytest.MonkeyPatch, kind: str, error: type[Exception], says: str
) -> None:
    monkeypatch.setattr(Hostile, "kind", kind)
    if kind == "large":
        monkeypatch.setattr(following, "LARGEST", 1000)
    if kind == "slow":
        monkeypatch.setattr(following, "PATIENCE", -1000.0)
    with pytest.raises(error, match=says):
        Writer(hostile, TOKEN).look("")
    assert Hostile.asked == ["/checkpoint"]
    monkeypatch.undo()
    found = Writer(hostile, TOKEN).look("").found
    assert found is not None
    assert found.name == Hostile.name


def test_a_writer_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(UnavailableError, match="timed out"):
            Writer(f"http://127.0.0.1:{silent.getsockname()[1]}", TOKEN).look("")
    assert time.monotonic() - began < 5


def test_a_writer_that_comes_back_is_followed_again(taught_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(taught_folder, folder)
    with running(folder, pace=EACH) as client:
        address = str(client.base_url)
        follower = Replica(Writer(address, None), Limits(), address)
    assert [follower.turn(), follower.health()["status"]] == [False, "stale"]
    assert "can not be reached" in follower.metrics()["replica"]["problem"]
    with running(folder, pace=EACH) as client:
        follower._source = Writer(str(client.base_url), None)
        saved(client, 2)
        assert follower.turn()
        assert (follower.snapshot.learned, follower.metrics()["replica"]["problem"]) == (72, None)
        assert follower.health()["behind"] == 0
        client.service.engine.stop()  # what is accepted from now on waits
        assert client.service.journal.append([as_post(examples(1))]) == [[73]]
        assert follower.turn()
        assert follower.health()["behind"] == 1
