from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label
from dhocl.knowledge import Llm
from tests.helpers.waiting import grows_in_the_background

LEVELS = ("kind", "family", "species")
BIRD, THRUSH, ROBIN, FINCH = Label("bird", 0), Label("thrush", 1), Label("robin", 2), Label("finch", 2)
KNOWN = [BIRD, FINCH, THRUSH, Label("fish", 0), ROBIN]


def saying(parent: object, level: object = "family") -> tuple[int, str]:
    return reply(json.dumps({"parent": parent, "level": level}))


def reply(content: object) -> tuple[int, str]:
    return 200, json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]})


class Server(ThreadingHTTPServer):
    """Gives the replies it was told to, one after the other, the last for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies = [saying("thrush")]
        self.speak = threading.Event()  # before that there is no answer
        self.speak.set()
        self.drips = False  # answers without end, a byte at a time
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.headers.append(dict(self.headers))
        self.server.paths.append(self.path)
        assert self.server.speak.wait(60)
        status, content = self.server.replies[min(len(self.server.asked), len(self.server.replies)) - 1]
        try:
            self.send_response(status)
            if 300 < status < 400:
                self.send_header("Location", content)
            self.end_headers()
            while self.server.drips:
                self.wfile.write(b" ")
                time.sleep(0.01)
            self.wfile.write(content.encode())
        except OSError:  # who asked has gone
            pass

    def do_GET(self) -> None:
        self.server.headers.append(dict(self.headers))
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.drips = False
        server.speak.set()
        server.shutdown()
        thread.join()


def llm(server: Server, folder: Path, **more: Any) -> Llm:
    settings = {"url": server.url, "model": "small", "key": "secret", "folder": folder / "llm", "pause": 0.001} | more
    return Llm(LEVELS, **settings)


def test_the_parent_is_asked_for_among_coarser_classes(server: Server, tmp_path: Path) -> None:
    assert llm(server, tmp_path).query(ROBIN, KNOWN) == [(ROBIN, THRUSH)]
    (asked,) = server.asked
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[0]["Authorization"] == "Bearer secret"
    assert asked["model"] == "small"
    assert asked["response_format"]["type"] == "json_schema"
    assert "JSON" in asked["messages"][0]["content"]
    assert json.loads(asked["messages"][1]["content"]) == {
        "class": "robin",
        "level": "species",
        "known": {"kind": ["bird", "fish"], "family": ["thrush"]},
    }


def test_settings_come_from_the_environment(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "MODEL", "KEY"):
        monkeypatch.delenv(f"DHOCL_LLM_{name}", raising=False)
    with pytest.raises(InputError, match="needs DHOCL_LLM_URL"):
        Llm(LEVELS)
    monkeypatch.setenv("DHOCL_LLM_URL", server.url + "/")
    monkeypatch.setenv("DHOCL_LLM_MODEL", "large")
    monkeypatch.setenv("DHOCL_CACHE", str(tmp_path))
    assert Llm(LEVELS).query(ROBIN, KNOWN) == [(ROBIN, THRUSH)]
    assert server.asked[0]["model"] == "large"
    assert "Authorization" not in server.headers[0]
    assert len(list((tmp_path / "llm").iterdir())) == 1
    monkeypatch.setenv("DHOCL_LLM_URL", "file:///etc")
    with pytest.raises(InputError, match="needs DHOCL_LLM_URL"):
        Llm(LEVELS)


def test_where_nothing_coarser_is_known_nothing_is_asked(server: Server, tmp_path: Path) -> None:
    assert llm(server, tmp_path).query(BIRD, KNOWN) == []
    assert llm(server, tmp_path).query(ROBIN, [FINCH, ROBIN]) == []
    assert server.asked == []
    with pytest.raises(InputError, match="its level has no name"):
        llm(server, tmp_path).query(Label("x", 3), KNOWN)


def test_a_kept_answer_needs_no_call(server: Server, tmp_path: Path) -> None:
    for _ in range(2):
        assert llm(server, tmp_path).query(ROBIN, KNOWN) == [(ROBIN, THRUSH)]
    assert llm(server, tmp_path).query(ROBIN, KNOWN[::-1]) == [(ROBIN, THRUSH)], "the order does not matter"
    assert len(server.asked) == 1
    (file,) = (tmp_path / "llm").iterdir()
    assert json.loads(file.read_text())["answer"] == {"parent": "thrush", "level": "family"}
    llm(server, tmp_path).query(ROBIN, [*KNOWN, Label("heron", 1)])
    llm(server, tmp_path, model="other").query(ROBIN, KNOWN)
    assert len(server.asked) == 3, "other classes or another model make another question"
    for damaged in ("{", "[]", '{"answer": 7}'):
        file.write_text(damaged)
        assert llm(server, tmp_path).query(ROBIN, KNOWN) == [(ROBIN, THRUSH)]
    assert len(server.asked) == 6


@pytest.mark.parametrize(
    ("parent", "level", "why"),
    [
        ("dinosaur", "kind", "there is no such class"),
        ("bird", "family", "there is no such class"),
        ("bird", "order", "there is no such level"),
        ("robin", "species", "would make a cycle"),
        ("finch", "species", "a parent must be of a coarser level"),
        (7, "kind", "there is no such class"),
        (["bird"], "kind", "there is no such class"),
        ("bird", ["kind"], "there is no such level"),
    ],
)
def test_what_is_not_known_is_refused_and_logged(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, parent: object, level: object, why: str
) -> None:
    server.replies = [saying(parent, level)]
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert llm(server, tmp_path).query(ROBIN, KNOWN) == []
    assert why in caplog.text
    assert len(server.asked) == 1, "asking the same again would give the same"


def test_none_of_them_is_an_answer(server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server.replies = [saying(None, None)]
    for _ in range(2):
        assert llm(server, tmp_path).query(ROBIN, KNOWN) == []
    assert len(server.asked) == 1
    assert caplog.text == ""


@pytest.mark.parametrize(
    "malformed",
    [
        reply("thrush"),
        reply('{"parent": "thrush"}'),
        reply("{]}"),
        reply(None),
        reply("} {"),
        (200, "<html>"),
        (200, "{}"),
        (200, "[]"),
        (200, '{"choices": []}'),
        (200, ""),
        (500, "out of order"),
        (429, "slow down"),
    ],
)
def test_what_is_malformed_or_fails_is_tried_again(server: Server, tmp_path: Path, malformed: tuple[int, str]) -> None:
    server.replies = [malformed, malformed, reply('```json\n{"parent": "thrush", "level": "family"}\n```')]
    assert llm(server, tmp_path).query(ROBIN, KNOWN) == [(ROBIN, THRUSH)]
    assert len(server.asked) == 3


def test_a_server_that_goes_on_failing_has_no_answer_yet(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.replies = [(503, "")] * 3 + [saying("thrush")]
    source = llm(server, tmp_path, tries=3)
    assert source.query(ROBIN, KNOWN) == []
    assert "no answer about 'robin' (level 2): 503" in caplog.text
    assert source.query(ROBIN, KNOWN) == [(ROBIN, THRUSH)], "it was not kept"


def test_pauses_double(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("dhocl.knowledge.llm.time.sleep", pauses.append)
    server.replies = [(500, "")]
    llm(server, tmp_path, pause=2.0).query(ROBIN, KNOWN)
    assert [pause for pause in pauses if pause] == [2.0, 4.0, 8.0]


def test_a_silent_server_is_not_waited_for(server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server.speak.clear()
    assert llm(server, tmp_path, timeout=0.05, tries=2).query(ROBIN, KNOWN) == []
    assert "timed out" in caplog.text


def test_a_reply_without_end_is_not_waited_for(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.drips = True
    assert llm(server, tmp_path, timeout=0.2, tries=1).query(ROBIN, KNOWN) == []
    assert "the response timed out" in caplog.text
    monkeypatch.setattr("dhocl.core.responses.LARGEST", 2)
    assert llm(server, tmp_path, timeout=60, tries=1).query(ROBIN, KNOWN) == []
    assert "the response has more than 2 bytes" in caplog.text


def test_a_server_that_is_not_there_has_no_answer_yet(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert llm(server, tmp_path, url="http://127.0.0.1:9/v1", tries=1).query(ROBIN, KNOWN) == []
    assert "no answer about" in caplog.text


def test_the_budget_is_of_calls_and_not_exceeded(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.replies = [(500, ""), saying("thrush"), (500, "")]
    source = llm(server, tmp_path, budget=4)
    assert source.query(ROBIN, KNOWN) == [(ROBIN, THRUSH)]
    for _ in range(3):
        assert source.query(FINCH, KNOWN) == []
    assert len(server.asked) == 4
    assert "the budget of calls is used up" in caplog.text
    assert source.query(ROBIN, KNOWN) == [(ROBIN, THRUSH)], "what is kept costs nothing"


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_without_schemas_is_asked_in_another_way(server: Server, tmp_path: Path, status: int) -> None:
    server.replies = [(status, "unknown response_format"), saying("thrush")]
    source = llm(server, tmp_path)
    assert source.query(ROBIN, KNOWN) == [(ROBIN, THRUSH)]
    source.query(FINCH, KNOWN)
    assert [asked["response_format"]["type"] for asked in server.asked] == ["json_schema", "json_object", "json_object"]


@pytest.mark.parametrize(("status", "remedy"), [(401, "DHOCL_LLM_KEY"), (404, "DHOCL_LLM_URL and DHOCL_LLM_MODEL")])
def test_what_the_user_can_mend_is_told(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int, remedy: str
) -> None:
    server.replies = [(status, "")]
    with pytest.raises(InputError, match=f"returned {status} .*: check {remedy}") as told:
        llm(server, tmp_path).query(ROBIN, KNOWN)
    assert "secret" not in str(told.value) + caplog.text
    assert len(server.asked) == 1


def test_it_can_be_asked_in_the_background(server: Server, tmp_path: Path) -> None:
    server.replies = [saying("bird", "kind")]
    grows_in_the_background(llm(server, tmp_path), [ROBIN, FINCH, BIRD], {ROBIN: BIRD, FINCH: BIRD})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection_is_not_followed(server: Server, tmp_path: Path, status: int) -> None:
    """It could lead to hosts that only this machine can reach."""
    with Server() as other:
        thread = threading.Thread(target=other.serve_forever, args=(0.01,))
        thread.start()
        server.replies = [(status, f"{other.url}/elsewhere")]
        with pytest.raises(InputError, match=f"returned {status} .*: redirections are not followed"):
            llm(server, tmp_path).query(ROBIN, KNOWN)
        other.shutdown()
        thread.join()
    assert other.headers == []


def test_headers_without_end_are_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A byte at a time, so that no single read times out."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            line, _ = listener.accept()
            with line, suppress(OSError):
                line.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while True:
                    line.sendall(b"x")
                    time.sleep(0.02)

        thread = threading.Thread(target=drip)
        thread.start()
        source = Llm(
            LEVELS,
            url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1",
            model="m",
            folder=tmp_path,
            timeout=0.3,
            tries=1,
        )
        began = time.monotonic()
        assert source.query(ROBIN, KNOWN) == []
        assert time.monotonic() - began < 10
        thread.join()
    assert "no answer about" in caplog.text


@pytest.mark.parametrize(
    "hostile",
    [
        (200, "[" * 1_000_000),
        reply("{" + '"a":[' * 100_000 + "}"),
        saying("x" * 900_000, "kind"),
        saying("\ud800", "kind"),
        saying("bird", "\ud800\n forged"),
        saying("bird", "x" * 900_000),
    ],
    ids=["deep", "deep inside", "long", "half a character", "half a level", "long level"],
)
def test_a_hostile_answer_is_refused_in_a_short_line(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, hostile: tuple[int, str]
) -> None:
    server.replies = [hostile]
    for _ in range(2):
        assert llm(server, tmp_path, tries=1).query(ROBIN, KNOWN) == []
    assert len(caplog.messages) == 2
    assert all(len(message.encode()) < 500 and "\n" not in message for message in caplog.messages)


def test_a_folder_that_can_not_be_written_is_done_without(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "llm").touch()
    assert llm(server, tmp_path).query(ROBIN, KNOWN) == [(ROBIN, THRUSH)]
    assert "answers are not cached in" in caplog.text
