from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dhocl.core.errors import InputError
from dhocl.service import access, arriving
from dhocl.service.access import read_token
from tests.helpers.serving import examples, post, running

TOKEN = "correct-horse-battery"
WRITES = [
    ("POST", "/observations"), ("POST", "/taxonomy"), ("DELETE", "/observations"), ("PATCH", "/observations/1"),
    ("DELETE", "/observations/1"), ("POST", "/images"), ("POST", "/images/1/label"), ("DELETE", "/images/1"),
    ("POST", "/observations/1/unlabel"), ("GET", "/checkpoint"),
]  # fmt: skip
READS = [
    ("GET", "/taxonomy"), ("GET", "/taxonomy/events"), ("GET", "/metrics"), ("GET", "/observations/recent"),
    ("GET", "/observations/1/thumbnail"), ("GET", "/entries/1"), ("GET", "/confusions"), ("GET", "/events"),
    ("POST", "/predict"), ("GET", "/suggestions"), ("GET", "/images/1/thumbnail"),
    ("POST", "/examples"),
]  # fmt: skip
OPEN = [("GET", "/"), ("GET", "/docs"), ("GET", "/health"), ("GET", "/openapi.json")]


@pytest.fixture(scope="module", params=[False, True], ids=["open reading", "protected reading"])
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, bool]]:
    with running(tmp_path_factory.mktemp("g") / "m", token=TOKEN, protect_reading=request.param) as client:
        yield client, request.param


def code(client: httpx.Client, method: str, path: str, **headers: str) -> int:
    """Of a request without the client's own token."""
    with httpx.stream(method, f"{client.base_url}{path}", headers=headers, timeout=30) as answer:
        return answer.status_code


def test_every_route_is_listed_here(guarded: tuple[httpx.Client, bool]) -> None:
    described = guarded[0].get("/openapi.json").json()["paths"]
    listed = {path.replace("/1", "/{number}") for _, path in WRITES + READS + OPEN} - {"/", "/docs", "/openapi.json"}
    assert set(described) == listed
    assert {(m, p) for p, methods in described.items() for m in methods if m != "get"} == {
        (m.lower(), p.replace("/1", "/{number}")) for m, p in WRITES + READS if m != "GET"
    }


def test_writing_needs_the_token(guarded: tuple[httpx.Client, bool]) -> None:
    client, _ = guarded
    wrong = ["", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN]
    for method, path in WRITES:
        assert code(client, method, path) == 401
        for given in wrong:
            assert code(client, method, path, Authorization=given) == 401
        assert code(client, method, path, Authorization=f"Bearer {TOKEN}") in (200, 400, 404, 415, 422)
        assert code(client, method, path, Authorization=f"bearer {TOKEN}") in (200, 400, 404, 415, 422)
    assert post(client, examples(2)).status_code == 202


def test_the_description_says_what_needs_the_token(guarded: tuple[httpx.Client, bool]) -> None:
    client, _ = guarded
    described = client.get("/openapi.json").json()
    assert described["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    for method, path in WRITES + READS + [("GET", "/health")]:
        operation = described["paths"][path.replace("/1", "/{number}")][method.lower()]
        assert ("security" in operation) == (code(client, method, path) == 401), path


def test_a_token_of_other_characters_is_just_wrong(guarded: tuple[httpx.Client, bool]) -> None:
    address = guarded[0].base_url
    with socket.create_connection((address.host, address.port or 80)) as line:
        line.sendall(
            b"POST /taxonomy HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\xe9\r\nContent-Length: 0\r\n\r\n"
        )
        assert b"401" in line.recv(100)


def test_reading_needs_it_by_option(guarded: tuple[httpx.Client, bool]) -> None:
    client, protected = guarded
    for method, path in READS:
        assert (code(client, method, path) == 401) == protected
        assert code(client, method, path, Authorization=f"Bearer {TOKEN}") != 401
    for method, path in OPEN:
        assert code(client, method, path) == 200


def test_the_token_is_compared_in_constant_time(
    guarded: tuple[httpx.Client, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    monkeypatch.setattr(access.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or False)
    assert code(guarded[0], "POST", "/taxonomy", Authorization=f"Bearer {TOKEN}") == 401
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


def test_who_may_not_write_is_told_before_the_body_is_read(guarded: tuple[httpx.Client, bool]) -> None:
    """The answer comes although nothing of the announced body is sent."""
    address = guarded[0].base_url
    with socket.create_connection((address.host, address.port or 80)) as line:
        line.sendall(b"POST /observations HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        assert b"401" in line.recv(100)


def test_pages_of_other_sites_can_not_write(tmp_path: Path) -> None:
    with running(tmp_path / "m") as client:
        own = f"http://127.0.0.1:{client.base_url.port}"
        assert code(client, "POST", "/taxonomy", Origin="https://evil.example") == 403
        assert code(client, "POST", "/predict", Origin="null") == 403
        assert code(client, "POST", "/taxonomy", Origin=own) == 422
        assert code(client, "POST", "/taxonomy") == 422
        assert (
            "access-control-allow-origin"
            not in client.get("/metrics", headers={"Origin": "https://evil.example"}).headers
        )


def test_without_a_token_only_this_machine_by_its_own_name(tmp_path: Path) -> None:
    """A name that somebody points at 127.0.0.1 does not open the service to the pages of that name."""
    with running(tmp_path / "m") as client:
        for host in ("evil.example", "127.0.0.1.evil.example", "[", "", "localhost.evil.example:80"):
            assert code(client, "GET", "/metrics", Host=host) == 400
        for host in ("localhost", f"localhost:{client.base_url.port}", "[::1]:80", "127.0.0.1"):
            assert code(client, "GET", "/metrics", Host=host) == 200


def test_bodies_held_at_once_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "HELD", 0)
    with running(tmp_path / "m") as client:
        answer = post(client, examples(1))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert client.get("/metrics").status_code == 200


@pytest.mark.parametrize("content", [b"", b"short", b"two words of which each is long", "geheimes-wörtchen".encode()])
def test_token_files_that_are_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(InputError, match="--token-file"):
        read_token(tmp_path / "t", "127.0.0.1", protect_reading=False)
    with pytest.raises(InputError, match="can not be read"):
        read_token(tmp_path / "missing", "127.0.0.1", protect_reading=False)


def test_a_token_file_may_end_in_a_newline(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(TOKEN + "\n")
    assert read_token(tmp_path / "t", "127.0.0.1", protect_reading=False) == TOKEN
