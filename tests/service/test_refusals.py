"""What the service refuses: too much, malformed, or never possible."""

from __future__ import annotations

import socket
import threading
from typing import Any

import httpx
import numpy as np
import pytest

from dhocl.service import arriving
from dhocl.service.bodies import Limits
from dhocl.service.engine import Engine
from tests.helpers.serving import applied, encoded, examples, link, names, post, running, settled

TEXT_AS_IMAGE = b'--x\r\nContent-Disposition: form-data; name="image"\r\n\r\nabc\r\n--x--\r\n'


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            {"kind": "link", "child": {"name": "a", "rank": "kind"}, "parent": {"name": "b", "rank": "species"}},
            "coarser",
        ),
        ({"kind": "link", "child": {"name": "a", "rank": "kind"}, "parent": {"name": "a", "rank": "kind"}}, "coarser"),
        ({"kind": "unlink", "child": {"name": "a", "rank": "genus"}}, "unknown rank"),
        ({"kind": "unlink", "child": {"name": "", "rank": "kind"}}, "name"),
        ({"kind": "unlink"}, "child"),
        ({"kind": "explode"}, "kind"),
        ({"kind": "unlink", "child": {"name": "a", "rank": "kind"}, "more": 1}, "more"),
        ([], ""),
        ("link", ""),
        (None, ""),
    ],
)
def test_what_can_never_be_a_revision_is_refused_at_once(taught: httpx.Client, body: Any, says: str) -> None:
    answer = taught.post("/taxonomy", json=body)
    assert answer.status_code == 422
    assert says in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]


def test_a_cycle_can_not_be_made(taught: httpx.Client) -> None:
    before = names(taught)
    for child, parent in [("bird", "robin"), ("fish", "fish"), ("robin", "robin")]:
        link(taught, child, parent)
    settled(taught)
    assert names(taught) == before


def test_an_entry_tells_why_it_was_refused(taught: httpx.Client) -> None:
    numbers = [link(taught, child, "bird").json()["accepted"] for child in ("nobody", "robin")]
    assert applied(taught, numbers) == ["refused", "done"]
    refused, done = [taught.get(f"/entries/{number}").json() for number in numbers]
    assert (refused["kind"], refused["state"]) == ("revision", "refused")
    assert "nobody" in refused["reason"]
    assert (done["state"], done["reason"]) == ("done", None)


@pytest.mark.parametrize(
    "name", ["", "   ", "a\0b", "a\x1b[31m", "b\u202egnp.exe", "a" * 201, "\u2067x", "\ue000\uffff"]
)
def test_names_that_are_none(taught: httpx.Client, name: str) -> None:
    answer = post(taught, [(examples(1)[0][0], name, "species")])
    assert answer.status_code == 422
    assert "name" in answer.json()["detail"]


def test_half_characters_are_refused(taught: httpx.Client) -> None:
    body = b'{"kind": "unlink", "child": {"name": "\\ud800", "rank": "kind"}}'
    answer = taught.post("/taxonomy", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)


def test_who_does_not_listen_is_cut_off_and_the_others_are_not(fresh: httpx.Client) -> None:
    with httpx.stream("GET", f"{fresh.base_url}/events", timeout=60) as stream:
        first = next(stream.iter_lines())
        assert first.startswith(":")
    assert post(fresh, examples(5)).status_code == 202
    assert settled(fresh)["learned"] == 5


def test_back_pressure(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than fits is answered 429; what was answered 202 is learned, and nothing else."""
    go, turn = threading.Event(), Engine.turn
    monkeypatch.setattr(Engine, "turn", lambda engine: go.is_set() and turn(engine))
    with running(tmp_path / "m", Limits(queue=20)) as client:
        answers = [post(client, examples(8, seed)) for seed in range(5)]
        assert [answer.status_code for answer in answers] == [202, 202, 429, 429, 429]
        assert [answer.json()["queued"] for answer in answers[:2]] == [8, 16]
        assert all(1 <= int(answer.headers["retry-after"]) <= 60 for answer in answers[2:])
        assert post(client, examples(4)).status_code == 202, "what is small enough still fits"
        assert link(client, "robin", "bird").status_code == 429, "revisions wait in the same queue"
        assert client.post("/predict", files={"image": ("x", examples(1)[0][0])}).status_code == 409
        big = post(client, examples(21))
        assert (big.status_code, "at most 20" in big.json()["detail"]) == (413, True), "it would never fit"
        go.set()
        numbers = settled(client)
        assert numbers["accepted"] == numbers["learned"] == 20
        assert post(client, examples(8)).status_code == 202


def test_limits(tmp_path: Any) -> None:
    limits = Limits(batch=4, image_bytes=20_000, pixels=10_000)
    noise = np.random.default_rng(0).integers(0, 256, (99, 99, 3), dtype=np.uint8)
    with running(tmp_path / "m", limits) as client:
        cases = [
            (post(client, examples(5)), 413, "at most 4"),
            (post(client, [(encoded(noise), "a", "kind")]), 413, "20000 bytes"),
            (post(client, [(encoded(np.zeros((101, 101, 3), dtype=np.uint8)), "a", "kind")]), 413, "10000"),
            (post(client, [(encoded(noise[:50, :50], "GIF"), "a", "kind")]), 415, "neither JPEG nor PNG nor WebP"),
            (post(client, [(encoded(noise[:50, :50])[:-500], "a", "kind")]), 422, "damaged"),
            (post(client, [(b"", "a", "kind")]), 415, "neither"),
            (
                client.post("/predict", content=b"x" * 100_000, headers={"Content-Type": "application/json"}),
                413,
                "bytes",
            ),
        ]
        for answer, code, says in cases:
            assert answer.status_code == code, answer.text
            assert says in answer.json()["detail"]
            assert list(answer.json()) == ["detail"]
        assert client.get("/metrics").json()["accepted"] == 0


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        ("text/plain", b"hello", 415),
        ("", b"", 415),
        ("application/json", b"{", 400),
        ("application/json", b"", 400),
        ("application/json", b"[]", 422),
        ("application/json", b'{"observations": []}', 422),
        ("application/json", b'{"observations": [{"image": "!", "name": "a", "rank": "kind"}]}', 422),
        ("application/json", b'{"observations": [{"image": "", "name": "a", "rank": "kind"}]}', 415),
        ("application/json", b"[" * 100_000, 400),
        ("application/json", b"\xff\xfe", 400),
        ("multipart/form-data", b"", 400),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n", 400),
        ("multipart/form-data; boundary=x", b"nonsense", 400),
        ("multipart/form-data; boundary=x", b"--x--\r\n", 422),
        ("multipart/form-data; boundary=x", TEXT_AS_IMAGE, 422),
    ],
)  # fmt: skip
def test_malformed_bodies(taught: httpx.Client, kind: str, body: bytes, code: int) -> None:
    answer = taught.post("/observations", content=body, headers={"Content-Type": kind})
    assert answer.status_code == code, answer.text
    assert isinstance(answer.json()["detail"], str)
    assert "\n" not in answer.json()["detail"]


def test_fields_must_match(taught: httpx.Client) -> None:
    image = ("image", ("x", examples(1)[0][0]))
    for data in [
        {"name": ["a", "b"], "rank": "kind"},
        {"rank": "kind"},
        {"name": "a"},
        {"name": "a", "rank": ["kind"] * 2},
    ]:
        answer = taught.post("/observations", files=[image], data=data)
        assert answer.status_code == 422
    answer = taught.post("/observations", files=[image, image], data={"name": "a", "rank": "kind"})
    assert "2 images, 1 names and 1 ranks" in answer.json()["detail"]
    answer = taught.post("/observations", files=[image], data={"name": "a", "rank": "genus"})
    assert "choose one of kind, species" in answer.json()["detail"]


def test_a_batch_with_one_bad_image_is_refused_whole(fresh: httpx.Client) -> None:
    answer = post(fresh, [*examples(2), (b"\xff\xd8\xff", "a", "kind")])
    assert (answer.status_code, answer.json()["detail"][:7]) == (422, "image 2")
    assert fresh.get("/metrics").json()["accepted"] == 0


def test_errors_tell_nothing_of_others(taught: httpx.Client) -> None:
    answer = taught.get("/nowhere")
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
    assert taught.get("/entries/999999").status_code == 404
    refused = taught.put("/taxonomy")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST")
    assert "Traceback" not in answer.text


def test_who_stops_half_way_is_not_waited_for(fresh: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "PATIENCE", 0.2)
    with socket.create_connection((fresh.base_url.host, fresh.base_url.port or 80), timeout=60) as line:
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        line.sendall(head + b"Content-Length: 100\r\n\r\n{")
        assert b"408" in line.recv(100)
