"""The contract, spoken over a real connection."""

from __future__ import annotations

import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import httpx
import pytest
from PIL import Image

from dhocl.service import engine
from dhocl.service.engine import Engine
from dhocl.service.served import Snapshot
from tests.helpers.serving import TREE, applied, examples, link, names, post, running, settled, until


def test_it_learns_and_predicts(taught: httpx.Client) -> None:
    test = [example for example in examples(40, seed=99) if example[2] == "species"]
    files = [("image", ("x.png", image, "image/png")) for image, _, _ in test]
    found = taught.post("/predict", files=files).json()["predictions"]
    assert len(found) == len(test)
    right = [prediction["path"][1]["name"] == name for prediction, (_, name, _) in zip(found, test, strict=True)]
    assert sum(right) >= 0.9 * len(right)
    for prediction in found:
        path = prediction["path"]
        assert [node["rank"] for node in path] == ["kind", "species"]
        assert TREE[path[1]["name"]] == path[0]["name"]
        assert 0 < path[1]["probability"] <= path[0]["probability"] <= 1
        assert prediction["answer"] == path[1]
        assert prediction["alternatives"] == {"kind": [], "species": []}, "none unless asked for"


def test_alternatives_and_ranks_by_themselves_on_request(taught: httpx.Client) -> None:
    """As in Python: the same model, read while the service runs."""
    image = {"image": ("x.png", examples(2, seed=7)[1][0])}

    def ask(**options: Any) -> dict[str, Any]:
        (found,) = taught.post("/predict", files=image, params=options).json()["predictions"]
        return dict(found)

    plain, more, alone = ask(), ask(top=3), ask(top=3, decode="level")
    assert (more["path"], more["answer"]) == (plain["path"], plain["answer"])
    assert "ranks" not in more
    assert [len(more["alternatives"][rank]) for rank in ("kind", "species")] == [1, 2]
    chances = [more["path"][1], *more["alternatives"]["species"]]
    assert sum(guess["probability"] for guess in chances) <= 1 + 1e-5
    assert chances[0]["name"] not in [guess["name"] for guess in chances[1:]]
    assert (alone["path"], alone["answer"]) == (plain["path"], plain["answer"])
    assert "alternatives" not in alone
    assert [len(alone["ranks"][rank]) for rank in ("kind", "species")] == [2, 3]
    assert sum(guess["probability"] for guess in alone["ranks"]["kind"]) == pytest.approx(1, abs=1e-5)
    refused = taught.post("/predict", files=image, params={"decode": "tree"})
    assert (refused.status_code, refused.json()["detail"]) == (422, "decode: Input should be 'level' or 'path'")
    assert taught.post("/predict", files=image, params={"top": 101}).status_code == 422


def test_the_answer_ends_above_what_is_new(taught: httpx.Client) -> None:
    image = {"image": ("x.png", examples(2, seed=7)[1][0])}
    for rate, new in [(1, "kind"), (0, None)]:
        (found,) = taught.post("/predict", files=image, params={"false_alarms": rate}).json()["predictions"]
        assert set(found["familiar"]) == {"kind", "species"}, "both were met often enough"
        assert found["new"] == new
        assert found["answer"] == (None if new else found["path"][1])


def test_the_only_class_of_a_rank_is_never_certain(fresh: httpx.Client) -> None:
    (image, _, _), *_ = examples(1)
    post(fresh, [(image, "wren", "species")] * 3)
    settled(fresh)
    (found,) = fresh.post("/predict", files={"image": ("x.png", image)}).json()["predictions"]
    assert found["only"] == ["species"]
    assert found["answer"] == {"rank": "species", "name": "wren", "probability": 0.8}, "three of three, by Laplace"


def test_restricted_answers(taught: httpx.Client) -> None:
    files = [("image", ("x.png", image)) for image, _, _ in examples(8, seed=5)]

    def ask(**options: Any) -> httpx.Response:
        return taught.post("/predict", files=files, params=options)

    for found in ask(within="fish", top=4).json()["predictions"]:
        assert found["path"][0]["name"] == "fish"
        assert found["path"][0]["probability"] == pytest.approx(1)
        assert {found["path"][1]["name"], found["alternatives"]["species"][0]["name"]} == {"cod", "carp"}
    among = ask(among=["robin", "species:carp", "dodo"]).json()
    assert {found["path"][1]["name"] for found in among["predictions"]} <= {"robin", "carp"}
    assert among["unknown"] == ["dodo"]
    assert "unknown" not in ask(within="fish").json()
    for options, problem in [
        ({"within": "fisch"}, "within fisch: no such class; did you mean fish?"),
        ({"within": "bird", "among": ["cod"]}, "no known path is inside within bird and among: leave one of them out"),
        ({"among": ["dodo"]}, "among: 1 of 1 names are not known to the model: 'dodo': give names that it knows"),
    ]:
        answer = ask(**options)
        assert (answer.status_code, answer.json()["detail"]) == (422, problem)
    assert ask(among=["robin"] * 1001).status_code == 422


def test_an_answer_is_as_deep_as_it_is_sure(taught: httpx.Client) -> None:
    image = {"image": ("x.png", examples(2, seed=7)[1][0])}
    path = taught.post("/predict", files=image).json()["predictions"][0]["path"]
    between = (path[0]["probability"] + path[1]["probability"]) / 2
    for confidence, answer in [(0, path[1]), (between, path[0]), (1, None)]:
        found = taught.post("/predict", files=image, params={"confidence": confidence}).json()["predictions"][0]
        assert found["answer"] == answer


def test_requests_that_wait_together_get_their_own_predictions(
    taught: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [(examples(n % 3 + 1, seed=n), n % 2 / 2) for n in range(12)]
    sizes, predict = [], Snapshot.predict

    def slow(snapshot: Snapshot, images: Any, asked: Any) -> Any:
        sizes.append(len(images))
        time.sleep(0.2)  # meanwhile, others gather
        return predict(snapshot, images, asked)

    def ask(request: tuple[list[tuple[bytes, str, str]], float]) -> list[Any]:
        files = [("image", ("x", image)) for image, _, _ in request[0]]
        answer = httpx.post(f"{taught.base_url}/predict", files=files, params={"confidence": request[1]}, timeout=60)
        found = answer.json()["predictions"]
        return [(p["answer"] and p["answer"]["name"], [node["name"] for node in p["path"]]) for p in found]

    alone = [ask(request) for request in given]
    monkeypatch.setattr(Snapshot, "predict", slow)
    with ThreadPoolExecutor(len(given)) as clients:
        assert list(clients.map(ask, given)) == alone
    assert max(sizes) > 3, "several requests in a call"


def test_json_and_multipart_say_the_same(taught: httpx.Client) -> None:
    image = examples(1, seed=3)[0][0]
    by_form = taught.post("/predict", files={"image": ("x", image)}).json()
    by_json = taught.post("/predict", json={"images": [base64.b64encode(image).decode()]}).json()
    assert by_form == by_json


def test_observations_as_json(fresh: httpx.Client) -> None:
    given = [{"image": base64.b64encode(i).decode(), "name": n, "rank": r} for i, n, r in examples(5)]
    answer = fresh.post("/observations", json={"observations": given})
    assert (answer.status_code, answer.json()["accepted"]) == (202, [1, 2, 3, 4, 5])
    assert settled(fresh)["learned"] == 5
    recent = fresh.get("/observations/recent", params={"n": 3}).json()
    assert [(r["number"], r["name"], r["rank"], r["state"]) for r in recent] == [
        (n + 1, given[n]["name"], given[n]["rank"], "learned") for n in (4, 3, 2)
    ]


def test_what_is_foreseen_is_right_by_any_of_its_names(fresh: httpx.Client) -> None:
    for seed in range(3):
        post(fresh, examples(40, seed))
    merge = {"kind": "merge", "class": {"name": "carp", "rank": "species"}, "into": "cod"}
    assert fresh.post("/taxonomy", json=merge).status_code == 202
    settled(fresh)
    image = next(image for image, name, _ in examples(40) if name == "cod")
    numbers = post(fresh, [(image, "carp", "species"), (image, "robin", "species"), (image, "heron", "species")]).json()
    settled(fresh)
    told = {o["number"]: o["predicted"] for o in fresh.get("/observations/recent?n=3").json()}
    foreseen = [(told[number]["name"], told[number]["right"]) for number in numbers["accepted"]]
    assert foreseen == [("cod", True), ("cod", False), ("cod", False)]


def test_nothing_is_predicted_before_something_is_learned(fresh: httpx.Client) -> None:
    answer = fresh.post("/predict", files={"image": ("x", examples(1)[0][0])})
    assert (answer.status_code, answer.json()) == (409, {"detail": "nothing is learned yet: post observations first"})
    assert fresh.get("/taxonomy").json() == {"ranks": ["kind", "species"], "version": 0, "nodes": []}
    assert fresh.get("/observations/recent").json() == []


def test_the_tree_and_its_events_agree(taught: httpx.Client) -> None:
    tree = taught.get("/taxonomy").json()
    events = taught.get("/taxonomy/events").json()
    assert events["version"] == tree["version"] == len(events["events"])
    built: dict[int, dict[str, Any]] = {}
    for event in events["events"]:  # a client that only follows events
        if event["kind"] == "add":
            built[event["node"]] = {
                "name": event["name"],
                "rank": event["rank"],
                "parent": None,
                "since": event["number"],
            }
        elif event["kind"] == "link":
            built[event["node"]]["parent"] = event["parent"]
        elif event["kind"] == "unlink":
            built[event["node"]]["parent"] = None
    assert [{"id": node, **rest} for node, rest in built.items()] == tree["nodes"]
    later = taught.get("/taxonomy/events", params={"since": 4}).json()["events"]
    assert later == events["events"][4:]
    assert taught.get("/taxonomy/events", params={"since": 10**9}).json()["events"] == []


def test_revisions(fresh: httpx.Client) -> None:
    post(fresh, examples(30))
    settled(fresh)
    for child, parent in TREE.items():
        assert link(fresh, child, parent).status_code == 202
    cod, crow = {"name": "cod", "rank": "species"}, {"name": "crow", "rank": "species"}
    numbers = [
        fresh.post("/taxonomy", json=body).json()["accepted"]
        for body in (
            {"kind": "unlink", "child": cod},
            {"kind": "rename", "class": {"name": "bird", "rank": "kind"}, "to": "Aves"},
            {"kind": "merge", "class": crow, "into": "robin"},
            {"kind": "add", "class": {"name": "auk", "rank": "species"}, "parent": {"name": "Aves", "rank": "kind"}},
            {"kind": "merge", "class": crow, "into": "unicorn"},
        )
    ]
    assert applied(fresh, numbers) == ["done", "done", "done", "done", "refused"]
    assert names(fresh) == {
        "Aves": None, "fish": None, "robin": "Aves", "cod": None, "carp": "fish", "auk": "Aves"
    }  # fmt: skip
    image = {"image": ("x", examples(1)[0][0])}
    assert fresh.post("/predict", files=image).status_code == 200, "a class without an image is there by now"


ODD = ["Ω≈ç√", "鳥", "a" * 200,
       "<script>alert(1)</script>", "../../etc/passwd", "'; DROP TABLE entries; --", "🦜", "\u0915\u094d\u200d\u0937",
       "%s%n",
       "None", "NaN", "e\u0301", "\U0001f1e9\U0001f1ea", "x" + "\u0301" * 50]  # fmt: skip


def test_names_are_data(fresh: httpx.Client) -> None:
    image = examples(1)[0][0]
    assert post(fresh, [(image, name, "species") for name in ODD]).status_code == 202
    settled(fresh)
    known = names(fresh)
    for name in ODD:
        assert (name if name != "e\u0301" else "\xe9") in known or name.startswith("x")
    assert len(known) == len(ODD)
    assert post(fresh, [(image, "  鳥\t", "species")]).status_code == 202
    settled(fresh)
    assert len(names(fresh)) == len(ODD), "blanks around a name do not make another class"


def test_metrics(taught: httpx.Client) -> None:
    numbers = taught.get("/metrics").json()
    assert numbers["accepted"] == numbers["learned"] == 8 * 24
    assert (numbers["refused"], numbers["queued"]) == (0, 0)
    assert numbers["classes"] == {"kind": 2, "species": 4}
    assert sum(rank["seen"] for rank in numbers["ranks"].values()) >= 8 * 24
    assert numbers["history"][-1]["learned"] == 8 * 24
    assert numbers["history"][-1]["accuracy"] == {r: v["recent"] for r, v in numbers["ranks"].items()}
    assert numbers["ranks"]["species"]["recent"] > 0.7


def test_metrics_for_prometheus(taught: httpx.Client) -> None:
    answers = [taught.get("/metrics", headers={"Accept": "text/plain"}), taught.get("/metrics?format=prometheus")]
    for answer in answers:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
        values = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}
        assert values["dhocl_learned_total"] == 8 * 24
        assert values['dhocl_classes{rank="species"}'] == 4


def test_thumbnails(taught: httpx.Client) -> None:
    recent = taught.get("/observations/recent?n=1").json()[0]
    answer = taught.get(recent["thumbnail"])
    assert answer.headers["content-type"] == "image/jpeg"
    with Image.open(BytesIO(answer.content)) as image:
        assert image.format == "JPEG"
        assert max(image.size) <= 128
    assert taught.get("/observations/123456/thumbnail").status_code == 404


def test_news_as_they_happen(fresh: httpx.Client) -> None:
    heard: list[tuple[str, Any]] = []
    ready = threading.Event()

    def listen() -> None:
        with httpx.stream("GET", f"{fresh.base_url}/events", timeout=60) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            event = ""
            for line in stream.iter_lines():
                ready.set()
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    heard.append((event, json.loads(line.removeprefix("data: "))))
                    if event == "metrics" and heard[-1][1]["learned"] == 3:
                        return

    listener = threading.Thread(target=listen)
    listener.start()
    ready.wait(60)
    given = examples(3)
    post(fresh, given)
    listener.join(60)
    kinds = {event for event, _ in heard}
    assert kinds == {"observation", "taxonomy", "metrics"}
    learned = [data for event, data in heard if event == "observation" and data["state"] == "learned"]
    assert [(data["name"], data["rank"]) for data in learned] == [(name, rank) for _, name, rank in given]
    events = [e for event, data in heard if event == "taxonomy" for e in data["events"]]
    assert events == fresh.get("/taxonomy/events").json()["events"]


def test_health_and_page(taught: httpx.Client) -> None:
    assert taught.get("/health").json()["status"] == "ok"
    page = taught.get("/")
    policy = page.headers["content-security-policy"]
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert taught.get("/metrics").headers["x-content-type-options"] == "nosniff"


def test_an_entry_is_done_when_its_effect_can_be_read(taught: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*given: Any, **more: Any) -> Snapshot:
        time.sleep(0.3)
        return Snapshot(*given, **more)

    monkeypatch.setattr(engine, "Snapshot", late)
    for parent in ("fish", "bird"):
        assert applied(taught, [link(taught, "robin", parent).json()["accepted"]]) == ["done"]
        assert names(taught)["robin"] == parent


def test_a_knowledge_source_grows_the_tree(tmp_path: Any) -> None:
    (tmp_path / "tree.tsv").write_text(
        "child\tlevel\tparent\nbird\tkind\t\nfish\tkind\t\n" + "".join(f"{c}\tspecies\t{p}\n" for c, p in TREE.items())
    )
    with running(tmp_path / "m", sources=[f"tree:{tmp_path / 'tree.tsv'}"]) as client:
        post(client, examples(30))
        until(lambda: names(client) == {"bird": None, "fish": None, **TREE})
        unlink = {"kind": "unlink", "child": {"name": "cod", "rank": "species"}}
        number = client.post("/taxonomy", json=unlink).json()["accepted"]
        until(lambda: client.get(f"/entries/{number}").json()["state"] == "done")
        post(client, examples(30, seed=1))
        settled(client)
        assert names(client)["cod"] is None, "what is told by hand stays"


def test_predictions_go_on_while_it_learns(fresh: httpx.Client) -> None:
    post(fresh, examples(24))
    settled(fresh)
    for seed in range(10):
        post(fresh, examples(30, seed))
    image = {"image": ("x", examples(1)[0][0])}
    while fresh.get("/metrics").json()["queued"]:
        assert fresh.post("/predict", files=image).status_code == 200
    until(lambda: fresh.get("/metrics").json()["learned"] == 324)


def test_when_the_engine_dies_it_says_so_and_takes_nothing(
    fresh: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    post(fresh, examples(5))
    settled(fresh)

    def dies(engine: Engine) -> bool:
        raise RuntimeError("a defect, with secrets")

    monkeypatch.setattr(Engine, "turn", dies)
    until(lambda: fresh.get("/health").status_code == 503)
    assert fresh.get("/health").json() == {"status": "failed", "queued": 0, "learned": 5}
    answer = post(fresh, examples(5))
    assert (answer.status_code, answer.json()) == (503, {"detail": "learning has stopped: see the log of the service"})
    assert fresh.post("/predict", files={"image": ("x", examples(1)[0][0])}).status_code == 200
    assert fresh.get("/metrics").json()["accepted"] == 5


def test_a_full_disk_loses_nothing(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """SQLite itself is told that there is no more room."""
    with running(tmp_path / "m") as client:
        first = [post(client, examples(20, seed)).status_code for seed in range(2)]
        settled(client)
        journal = client.service.journal
        with journal._lock:
            (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
            journal._db.execute(f"PRAGMA max_page_count = {pages}")
        answers = [post(client, examples(20, seed)) for seed in range(2, 8)]
        codes = [answer.status_code for answer in answers]
        assert 503 in codes
        assert all("stored" in a.json()["detail"] and a.headers["retry-after"] for a in answers if a.status_code == 503)
        with journal._lock:
            journal._db.execute(f"PRAGMA max_page_count = {pages + 10_000}")
        assert post(client, examples(20, seed=8)).status_code == 202
        numbers = settled(client)
        assert numbers["learned"] == 20 * ([*first, *codes].count(202) + 1)
