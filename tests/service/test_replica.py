"""Replicas of a service, in processes of their own: by a folder, and over HTTP."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dhocl import Classifier
from dhocl.core import checkpoint
from dhocl.service import following, replica
from dhocl.service.bodies import Limits
from dhocl.service.following import Folder, UnavailableError
from dhocl.service.replica import Replica
from dhocl.service.served import ServedModel
from tests.helpers.replicas import EACH, TOKEN, saved, teach
from tests.helpers.serving import NEW, OPTIONS, examples, link, mistake, post, running, settled, started, until

BEARER = {"Authorization": f"Bearer {TOKEN}"}
OFTEN = ["--checkpoint-every", "1"]  # a checkpoint after each micro-batch, as EACH
EXAM = [("image", ("x.png", image, "image/png")) for image, _, _ in examples(6, seed=99)]


def predicted(client: httpx.Client, **query: Any) -> Any:
    answer = client.post("/predict", files=EXAM, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def caught_up(follower: httpx.Client, writer: httpx.Client) -> None:
    learned = writer.get("/metrics").json()["learned"]
    until(lambda: follower.get("/metrics").json()["learned"] == learned, 60)


@contextmanager
def two(tmp_path: Path, by: str) -> Iterator[tuple[Any, httpx.Client, httpx.Client]]:
    """The process of a writer, a client of it, and one of its replica."""
    (tmp_path / "token").write_text(TOKEN)
    guarded = ["--token-file", tmp_path / "token"]
    with started("--model", tmp_path / "m", *NEW, *OFTEN, *guarded) as (process, writer):
        writer.headers.update(BEARER)
        teach(writer, 0)
        follow = tmp_path / "m" if by == "folder" else writer.base_url
        with started("--follow", follow, "--read-only", *guarded) as (_, follower):
            yield process, writer, follower


@pytest.mark.parametrize("by", ["folder", "url"])
def test_a_replica_predicts_like_its_writer(tmp_path: Path, by: str) -> None:
    with two(tmp_path, by) as (process, writer, follower):
        caught_up(follower, writer)
        before = predicted(follower, top=2)
        assert before == predicted(writer, top=2)
        teach(writer, 1)
        link(writer, "robin", "bird")
        settled(writer)
        teach(writer, 2)
        caught_up(follower, writer)
        assert predicted(follower, top=2) == predicted(writer, top=2) != before
        within = {"within": "bird", "among": ["robin", "dodo"]}
        assert predicted(follower, **within) == predicted(writer, **within)
        assert follower.get("/taxonomy").json() == writer.get("/taxonomy").json()
        assert follower.get("/confusions").json() == writer.get("/confusions").json()

        address = str(writer.base_url).rstrip("/") if by == "url" else None
        refused = post_with_token(follower)
        assert (refused.status_code, refused.json()["writer"]) == (403, address)
        assert (address or "the service that learns in the folder") in refused.json()["detail"]
        until(lambda: follower.get("/health").json()["behind"] == (0 if by == "url" else None), 60)

        process.kill()
        process.wait()
        answer = predicted(follower)
        if by == "url":
            until(lambda: follower.get("/health").json()["status"] == "stale", 60)
        health = follower.get("/health")
        assert health.status_code == 200
        assert health.json()["behind"] is None
        assert predicted(follower) == answer
        replica = follower.get("/metrics").json()["replica"]
        assert replica["checkpoint"] == checkpoint.newest_first(tmp_path / "m" / "checkpoints")[0].stem
        assert replica["follows"] == (address or str(tmp_path / "m"))
        assert (replica["problem"] is None) == (by == "folder")
        text = follower.get("/metrics", params={"format": "prometheus"}).text
        assert 0 <= float(text.split("\ndhocl_staleness_seconds ")[1].split()[0]) < 600
        assert "dhocl_queued" not in text


def post_with_token(client: httpx.Client) -> httpx.Response:
    assert post(client, examples(1)).status_code == 401, "the token comes first"
    client.headers.update(BEARER)
    return post(client, examples(1))


def test_a_checkpoint_that_replaces_another_under_load(tmp_path: Path) -> None:
    """No request fails, and each answer is that of one checkpoint."""
    with running(tmp_path / "m", pace=EACH) as writer:
        saved(writer, 0)
        expected = {writer.service.snapshot.learned: predicted(writer, top=2, decode="level")}
        with started("--follow", tmp_path / "m") as (_, follower):
            ending = threading.Event()
            found: list[Any] = []

            def load() -> None:
                with httpx.Client(base_url=follower.base_url, timeout=60) as client:
                    while not ending.is_set():
                        found.append(predicted(client, top=2, decode="level"))

            threads = [threading.Thread(target=load) for _ in range(3)]
            for thread in threads:
                thread.start()
            try:
                until(lambda: found, 60)  # the first takes seconds: it starts what decodes
                for seed in range(1, 3):
                    saved(writer, seed)
                    expected[writer.service.snapshot.learned] = predicted(writer, top=2, decode="level")
                    caught_up(follower, writer)
                seen = len(found)
                until(lambda: len(found) > seen + 3, 60)
            finally:
                ending.set()
                for thread in threads:
                    thread.join()
    assert len(expected) == 3
    assert all(answer in expected.values() for answer in found)
    assert found[0] == expected[24]
    assert found[-1] == expected[72]


def test_damaged_and_partial_checkpoints_are_not_used(taught_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    newest, older, *_ = checkpoint.newest_first(taught_folder / "checkpoints")
    (folder / "checkpoints").mkdir(parents=True)
    shutil.copy(older, folder / "checkpoints")
    follower = Replica(Folder(folder), Limits(), None)
    half = folder / "checkpoints" / newest.name
    half.write_bytes(newest.read_bytes()[:-100])
    before = follower.snapshot
    assert follower.turn()
    assert follower.snapshot is before
    assert half.exists(), "nothing is renamed"
    shutil.copy(newest, half)  # now it has arrived as a whole
    assert follower.turn()
    assert follower.metrics()["replica"]["checkpoint"] == newest.stem
    assert follower.snapshot.learned == 48
    shutil.rmtree(folder)
    assert not follower.turn()
    assert "holds no model" in follower.metrics()["replica"]["problem"]
    assert (follower.health()["status"], follower.snapshot.learned) == ("stale", 48)


def test_another_model_in_its_place_is_not_used(taught_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(taught_folder, folder)
    follower = Replica(Folder(folder), Limits(), None)
    shutil.rmtree(folder)
    ServedModel(Classifier(**OPTIONS | {"levels": ["genus", "species"]}).model).save(folder / "checkpoints")
    assert not follower.turn()
    assert "has another model by now" in follower.metrics()["replica"]["problem"]
    assert not follower.turn()
    assert follower.snapshot.learned == 48
    assert "can not be used" in follower.metrics()["replica"]["problem"]


def test_the_replica_waits_for_its_writer(
    taught_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = iter([UnavailableError("nobody is there"), OSError("no route"), None])
    monkeypatch.setattr(replica, "EVERY", 0.01)

    class Late(Folder):
        def look(self, known: str) -> following.Look:
            problem = next(looks)
            if problem:
                raise problem
            return super().look(known)

    assert Replica(Late(taught_folder), Limits(), None).snapshot.learned == 48
    assert [record.message.partition(";")[0] for record in caplog.records] == ["nobody is there", "no route"]


def test_requests_that_a_replica_does_not_take(taught_folder: Path) -> None:
    with started("--follow", taught_folder, "--writer", "https://birds.example/") as (process, client):
        for method, path in [
            ("POST", "/observations"),
            ("DELETE", "/observations/1"),
            ("PATCH", "/observations/1"),
            ("POST", "/taxonomy"),
            ("POST", "/images"),
            ("PUT", "/metrics"),
            ("DELETE", "/predict"),
        ]:
            answer = client.request(method, path)
            assert (answer.status_code, answer.json()) == (
                403,
                {
                    "detail": "this is a read-only replica: write to https://birds.example",
                    "writer": "https://birds.example",
                },
            )
        for path in ("/observations/recent", "/entries/1", "/suggestions", "/checkpoint"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["writer"]) == (404, "https://birds.example")
        assert client.get("/predict").status_code == 405
        assert client.post("/predict", files=[]).status_code == 415
        assert set(client.get("/openapi.json").json()["paths"]) == {
            *("/predict", "/taxonomy", "/taxonomy/events", "/metrics", "/confusions", "/events", "/health")
        }
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--read-only"], "--read-only is for a replica: give --follow"),
        (["--writer", "http://x"], "--writer is for a replica: give --follow"),
        (["--follow", "nowhere"], "nowhere holds no model"),
        (["--follow", "m", "--levels", "a,b"], "leave out --levels"),
        (["--follow", "m", "--model", "n"], "leave out --model"),
        (["--follow", "http://"], "expected an address such as"),
        (["--follow", "m", "--writer", "birds"], "--writer birds: expected an address"),
    ],
)
def test_mistakes_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in mistake(monkeypatch, capsys, *arguments)
