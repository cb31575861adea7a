"""Images without a label: kept, suggested, labelled once, removed."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
import threading
from pathlib import Path
from typing import ClassVar

import httpx
import numpy as np
import pytest
from anyio import to_thread

from dhocl.service.aside import Aside
from dhocl.service.bodies import Limits
from dhocl.service.features import AT_ONCE
from dhocl.service.images import decode
from dhocl.service.journal import Journal, Post
from dhocl.service.pool import Pool
from dhocl.service.ranking import Ranking
from dhocl.service.served import as_array, as_tensor
from dhocl.service.suggesting import Suggesting
from tests.helpers.serving import NEW, as_post, encoded, examples, leave, opened, post, running, settled, started, until


def add(client: httpx.Client, images: list[bytes]) -> httpx.Response:
    return client.post("/images", files=[("image", ("x.png", image, "image/png")) for image in images])


def images(n: int, seed: int = 5) -> list[bytes]:
    return [image for image, _, _ in examples(n, seed)]


def test_the_way_of_an_image(tmp_path: Path) -> None:
    with running(tmp_path / "m") as client:
        assert client.get("/suggestions").json() == {"suggestions": [], "considered": 0, "pool": 0}
        answer = add(client, images(20))
        assert (answer.status_code, answer.json()) == (201, {"accepted": list(range(1, 21)), "pool": 20})
        cold = client.get("/suggestions?count=3").json()
        assert (cold["considered"], cold["pool"], len(cold["suggestions"])) == (20, 20, 3)
        assert [each["rank"] for each in cold["suggestions"]] == ["kind", "species", "species"]
        assert all(each["path"] == [] and each["guess"] is None for each in cold["suggestions"])
        post(client, examples(40))
        settled(client)
        found = client.get("/suggestions").json()["suggestions"]
        assert len(found) == 12
        scores = [each["score"] for each in found]
        assert scores == sorted(scores, reverse=True)
        first = found[0]
        assert first["guess"]["name"] in {"bird", "fish", "robin", "crow", "cod", "carp"}
        assert {"rank", "name", "probability"} == set(first["path"][0])
        assert client.get(first["thumbnail"]).content[:3] == b"\xff\xd8\xff"
        labelled = client.post(f"/images/{first['id']}/label", json={"name": "robin", "rank": "species"})
        assert (labelled.status_code, labelled.json()["accepted"]) == (202, 41)
        numbers = settled(client)
        assert (numbers["pool"], numbers["learned"]) == (19, 41)
        assert client.get("/entries/41").json()["state"] == "done"
        assert client.get("/observations/41/thumbnail").content[:3] == b"\xff\xd8\xff"
        assert client.get(first["thumbnail"]).status_code == 404
        assert client.delete(f"/images/{found[1]['id']}").status_code == 204
        left = [each["id"] for each in client.get("/suggestions?count=100").json()["suggestions"]]
        assert len(left) == 18
        assert not {first["id"], found[1]["id"]} & set(left)
        assert "dhocl_pool 18.0" in client.get("/metrics?format=prometheus").text


def test_the_order_is_that_of_the_model(tmp_path: Path) -> None:
    """The wiring: the same images given to the model itself."""
    given = images(AT_ONCE + 3)
    with running(tmp_path / "m") as client:
        post(client, examples(40))
        settled(client)
        as_json = {"images": [base64.b64encode(image).decode() for image in given]}
        numbers = client.post("/images", json=as_json).json()["accepted"]
        found = client.get("/suggestions?count=9").json()
        pixels = [as_array(decode(image, 32, 10**6).pixels, 32) for image in given]
        expected = client.service.engine.snapshot._reader.suggest(as_tensor(pixels), 9)
        assert found["considered"] == AT_ONCE + 3
        assert [each["id"] for each in found["suggestions"]] == [numbers[each.row] for each in expected]
        assert [each["score"] for each in found["suggestions"]] == pytest.approx([e.score for e in expected], rel=1e-4)


def test_of_what_is_refused_nothing_is_kept(tmp_path: Path) -> None:
    bomb = encoded(np.zeros((1000, 1000, 3), dtype=np.uint8))
    one = {"name": "robin", "rank": "species"}
    with running(tmp_path / "m", Limits(pool=4, batch=6, pixels=10_000), token="a-long-enough-token") as client:
        assert add(client, [images(1)[0], bomb]).status_code == 413
        assert add(client, [b"text"]).status_code == 415
        assert add(client, [images(1)[0], images(1)[0][:-30]]).status_code == 422
        assert add(client, images(7)).status_code == 413
        assert "the size of the pool" in add(client, images(5)).json()["detail"]
        assert client.post("/images", json={"images": ["?"]}).json() == {"detail": "image 0 is not base64"}
        assert client.get("/metrics").json()["pool"] == 0
        assert add(client, images(3)).json()["pool"] == 3
        assert client.post("/images/2/label", json=one | {"rank": "tribe"}).status_code == 422
        assert client.post("/images/2/label", json=one | {"name": "\u202e"}).status_code == 422
        assert client.post("/images/9/label", json=one).status_code == 404
        assert client.post("/images/0/label", json=one).status_code == 422
        assert client.delete("/images/9").status_code == 404
        assert client.get("/suggestions?count=101").status_code == 422
        client.headers["Authorization"] = "Bearer something-else-entirely"
        for answer in (add(client, images(1)), client.delete("/images/2"), client.post("/images/2/label", json=one)):
            assert (answer.status_code, list(answer.json())) == (401, ["detail"])
        assert client.get("/suggestions").json()["pool"] == 3


def test_a_full_pool_loses_its_oldest_and_uses_no_id_twice(tmp_path: Path) -> None:
    with running(tmp_path / "m", Limits(pool=4)) as client:
        add(client, images(4))
        assert client.delete("/images/4").status_code == 204
        assert add(client, images(3)).json() == {"accepted": [5, 6, 7], "pool": 4}
        assert client.service.pool.ids() == [3, 5, 6, 7]
        found = client.get("/suggestions").json()
        assert sorted(each["id"] for each in found["suggestions"]) == [3, 5, 6, 7]


def test_images_that_come_during_the_last_step_get_features_too() -> None:
    class Slow:
        """Reads what there is, and then takes its time."""

        there: ClassVar = [1]
        held: ClassVar[list[int]] = []
        reading, go_on = threading.Event(), threading.Event()

        def advance(self) -> bool:
            lacking = [number for number in self.there if number not in self.held]
            self.reading.set()
            assert self.go_on.wait(10)
            self.held += lacking
            return False

    async def scene() -> None:
        slow = Slow()
        suggesting = Suggesting(slow, Aside())  # type: ignore[arg-type]
        first = suggesting.catch_up()
        await to_thread.run_sync(slow.reading.wait, 10)
        slow.there.append(2)
        assert suggesting.catch_up() is first
        slow.go_on.set()
        await first
        assert slow.held == [1, 2]

    asyncio.run(scene())


def test_a_lack_of_memory_does_not_end_the_computation_of_features(caplog: pytest.LogCaptureFixture) -> None:
    class Short:
        left: ClassVar[list[BaseException]] = [MemoryError("a lot")]

        def advance(self) -> bool:
            if self.left:
                raise self.left.pop()
            return False

    async def scene() -> None:
        suggesting = Suggesting(Short(), Aside())  # type: ignore[arg-type]
        await suggesting.catch_up()
        assert "a lot" in caplog.text
        await suggesting.catch_up()
        assert Short.left == []

    asyncio.run(scene())


def test_a_label_is_taken_back(tmp_path: Path) -> None:
    """The model forgets it, and the image goes back to the pool with the same pixels: once, and within its limit."""
    with running(tmp_path / "m", Limits(pool=3)) as client:
        post(client, examples(20))
        add(client, images(3))
        pixels = client.service.pool.pixels(2)
        number = client.post("/images/2/label", json={"name": "wren", "rank": "species"}).json()["accepted"]
        add(client, images(1))
        assert client.service.pool.ids() == [1, 3, 4]
        answer = client.post(f"/observations/{number}/unlabel")
        assert (answer.status_code, answer.json()["accepted"], answer.json()["id"]) == (202, number + 1, 5)
        assert client.service.pool.ids() == [3, 4, 5]
        assert client.service.pool.pixels(5) == pixels
        again = client.post(f"/observations/{number}/unlabel")
        assert (again.status_code, client.service.pool.ids()) == (410, [3, 4, 5])
        assert client.post("/observations/99/unlabel").status_code == 404
        until(lambda: client.get(f"/entries/{number + 1}").json()["state"] == "done")
        assert client.get("/metrics").json()["deleted"] == 1
        until(lambda: client.get(f"/observations/{number}/thumbnail").status_code == 404)
        assert client.get(f"/entries/{number + 1}").json()["erased"] is False, "the pool has the image"


def test_an_image_goes_back_to_the_pool_once(tmp_path: Path) -> None:
    """Also if two requests have passed the check before either is written."""
    journal = Journal(tmp_path / "journal.sqlite")
    journal.append([as_post(examples(1))])
    back = Post("correction", [{"kind": "delete"}], targets=[1], back=9)
    assert journal.append([back, back]) == [[2], []]
    assert Pool(journal, 9).ids() == [1]
    assert (journal.last, journal.queued) == (2, 2)
    journal.close()


def test_killed_it_keeps_the_pool_and_what_was_labelled(tmp_path: Path) -> None:
    with started("--model", tmp_path / "m", *NEW, "--pool", "9") as (process, client):
        add(client, images(9))
        assert add(client, images(3)).json() == {"accepted": [10, 11, 12], "pool": 9}
        accepted = client.post("/images/7/label", json={"name": "robin", "rank": "species"}).json()["accepted"]
        process.kill()
        process.wait()
    with started("--model", tmp_path / "m") as (_, client):
        assert settled(client)["learned"] == accepted == 1
        found = client.get("/suggestions").json()
        assert sorted(each["id"] for each in found["suggestions"]) == [4, 5, 6, 8, 9, 10, 11, 12]
        again = client.post("/images/7/label", json={"name": "robin", "rank": "species"})
        assert (again.status_code, "no such image" in again.json()["detail"]) == (404, True)


def test_a_label_moves_the_image_in_one_transaction(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    pool, (image, *_) = Pool(journal, 9), images(1)
    decoded = decode(image, 32, 10**6)
    pool.add([decoded, decoded])
    content = {"name": "robin", "rank": "species"}
    twice = [Post("observation", [content], pooled=1), Post("observation", [content], pooled=1)]
    assert journal.append(twice, room=5) == [[1], []]
    assert (journal.pixels(1, 1), journal.queued, journal.observations) == ({1: decoded.pixels}, 1, 1)
    assert journal.append([Post("observation", [content], pooled=2)], room=1) == [None]
    assert pool.ids() == [2]  # what is not accepted stays
    with pytest.raises(sqlite3.IntegrityError):  # the transaction fails after the image was taken
        journal.append([Post(None, [content], pooled=2)])  # type: ignore[arg-type]
    assert (pool.ids(), journal.last) == ([2], 1)
    journal.append([as_post(examples(1))])
    assert journal.whole(0)
    journal.close()


def test_a_removed_image_is_not_on_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    pool, image = Pool(journal, 9), decode(images(1)[0], 32, 10**6)
    (number,) = pool.add([image])
    assert pool.remove(number)
    assert not any(image.pixels[:200] in path.read_bytes() for path in tmp_path.iterdir())
    assert not pool.remove(number)
    journal.close()


def test_a_journal_without_a_pool_gets_one(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.sqlite").close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as db:
        db.executescript("DROP TABLE pool; DROP TABLE pool_last")
    journal = Journal(tmp_path / "journal.sqlite")
    assert Pool(journal, 3).ids() == []
    journal.close()


def test_a_network_that_is_trained_has_its_images_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features would not stay. A bounded number is considered."""
    monkeypatch.setattr("dhocl.service.ranking.TRAINED", 18)
    service = opened(tmp_path / "m")
    monkeypatch.setattr(type(service.engine.snapshot), "frozen_features", lambda self, x: None)
    service.pool.add([decode(image, 32, 10**6) for image in images(AT_ONCE + 8)])
    ranking = Ranking(service.pool, lambda: service.engine.snapshot, 32)
    assert ranking.advance()
    assert not ranking.advance()
    ranked = ranking.rank()
    assert (ranked.considered, ranked.pool, len(ranked.suggestions)) == (18, AT_ONCE + 8, 18)
    assert ranking.rank().suggestions is ranked.suggestions  # nothing has changed
    service.pool.remove(1)
    assert ranking.rank().considered == 17
    leave(service)


def test_predictions_are_made_while_features_are_computed(tmp_path: Path) -> None:
    with running(tmp_path / "m") as client:
        post(client, examples(20))
        settled(client)
        add(client, images(64))
        assert client.post("/predict", files={"image": images(1)[0]}).status_code == 200
        until(lambda: client.get("/suggestions").json()["considered"] == 64)
