"""Corrections of observations without a process: order, replay, erasure, and the routes that accept them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from dhocl.core import checkpoint
from dhocl.service import keeper
from dhocl.service.bodies import Limits
from dhocl.service.corrections import has_image
from dhocl.service.journal import Post
from dhocl.service.keeper import Pace
from dhocl.service.service import Service
from tests.helpers.engines import work_off
from tests.helpers.serving import OPTIONS, as_post, examples, leave, opened, post, running, settled, until

GIVEN = examples(24)


def correct(service: Service, target: int, **content: Any) -> int:
    (numbers,) = service.journal.append([Post("correction", [content], targets=[target])])
    assert numbers is not None
    return numbers[0]


def flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {key: found for part, inner in value.items() for key, found in flat(inner, f"{name}/{part}").items()}
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value}


def everything(service: Service) -> dict[str, Any]:
    return flat(service.engine._served.state_dict())


def sums(service: Service) -> dict[str, torch.Tensor]:
    """By name of the class: nodes depend on the order of labels."""
    statistics, tree = service.engine._served.model.learner.statistics, service.engine._served.taxonomy  # type: ignore[attr-defined]
    return {label.name: statistics.sums.filled[tree.id(label)] for label in tree} | {
        f"gram {level}": gram for level, gram in statistics.grams.items()
    }


def assert_never_saw(service: Service, folder: Path, given: list[tuple[bytes, str, str]]) -> None:
    other = opened(folder)
    other.journal.append([as_post(given)])
    work_off(other)
    found, wanted = sums(service), sums(other)
    leave(other)
    assert found.keys() >= wanted.keys()
    for name, values in found.items():
        assert torch.allclose(values, wanted.get(name, torch.zeros(())), atol=1e-5), name  # a class stays in the tree


def states(service: Service, *numbers: int) -> list[str]:
    entries = map(service.journal.entry, numbers)
    return [f"{entry.state}: {(entry.outcome or {}).get('reason')}" for entry in entries if entry]


def test_corrections_wait_their_turn_and_the_last_counts(tmp_path: Path) -> None:
    """All are accepted before the first observation is learned."""
    service = opened(tmp_path / "m")
    service.journal.append([as_post(GIVEN)])
    numbers = [
        correct(service, 3, kind="relabel", name="cod", rank="species"),
        correct(service, 3, kind="relabel", name="carp", rank="species"),
        correct(service, 7, kind="delete"),
        correct(service, 7, kind="relabel", name="cod", rank="species"),
        correct(service, 7, kind="delete"),
        correct(service, 9999, kind="delete"),
    ]
    work_off(service)
    done, gone = "done: None", "refused: observation 7 was deleted by entry 27"
    assert states(service, *numbers) == [done, done, done, gone, gone, "refused: observation 9999 is no longer stored"]
    counts = service.metrics()
    assert (counts["accepted"], counts["learned"], counts["deleted"], counts["relabelled"]) == (24, 24, 1, 2)
    left = [*GIVEN[:2], *GIVEN[3:6], *GIVEN[7:], (GIVEN[2][0], "carp", "species")]
    assert_never_saw(service, tmp_path / "n", left)
    leave(service)


def test_a_class_that_is_renamed_or_merged_meanwhile(tmp_path: Path) -> None:
    service = opened(tmp_path / "m")
    service.journal.append([as_post([(image, "crow", "species") for image, *_ in GIVEN[:4]])])
    service.journal.append([as_post([(image, "raven", "species") for image, *_ in GIVEN[4:8]])])
    crow, raven = ({"name": name, "rank": "species"} for name in ("crow", "raven"))
    service.journal.append([Post("revision", [{"kind": "merge", "class": crow, "into": "raven"}])])
    service.journal.append([Post("revision", [{"kind": "rename", "class": raven, "to": "Corvus corax"}])])
    numbers = [correct(service, 2, kind="delete"), correct(service, 6, kind="delete")]
    work_off(service)
    assert states(service, *numbers) == ["done: None"] * 2
    statistics = service.engine._served.model.learner.statistics  # type: ignore[attr-defined]
    assert statistics.counts.filled.tolist() == [3, 3]
    leave(service)


def test_after_a_crash_corrections_are_replayed_bit_for_bit(tmp_path: Path) -> None:
    service = opened(tmp_path / "m")
    service.journal.append([as_post(GIVEN)])
    work_off(service)
    service.engine.save()
    correct(service, 5, kind="relabel", name="cod", rank="species")
    correct(service, 5, kind="delete")
    correct(service, 5, kind="delete")
    service.journal.append([as_post(examples(5, seed=3))])
    correct(service, 30, kind="delete")
    work_off(service)
    before = everything(service)
    leave(service)
    again = opened(tmp_path / "m")
    work_off(again)
    assert everything(again) == before
    assert again.metrics()["deleted"] == 2
    leave(again)


def test_a_refused_observation_is_erased_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = opened(tmp_path / "m")
    service.journal.append([as_post(GIVEN[:2])])
    model = service.engine._served.model
    monkeypatch.setattr(type(model), "observe", lambda *_: 1 / 0)
    work_off(service)
    monkeypatch.undo()
    numbers = [correct(service, 1, kind="relabel", name="cod", rank="species"), correct(service, 1, kind="delete")]
    work_off(service)
    refused = "refused: observation 1 was refused, so it has no label to correct: post it again"
    assert states(service, *numbers) == [refused, "done: None"]
    service.engine.save()
    assert (has_image(service.journal, 1), has_image(service.journal, 2)) == (False, True)
    assert service.metrics()["deleted"] == 0, "of those learned"
    leave(service)


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("journal.sqlite*"))


def slices(service: Service, number: int) -> list[bytes]:
    """Parts of the pixels and of the thumbnail."""
    (pixels,) = service.journal.pixels(number, number).values()
    thumbnail = service.journal.thumbnail(number)
    assert thumbnail is not None
    return [pixels[:40], pixels[1500:1540], pixels[-40:], thumbnail[-60:-20]]


def fail(*_: Any, **__: Any) -> Any:
    raise SystemExit("killed")


STAGES: dict[str, tuple[Any, str]] = {
    "before its first checkpoint": (keeper.Keeper, "_write"),
    "between its checkpoints": (keeper, "erasing"),
    "before the images are deleted": (keeper, "erase"),
    "before the log is empty": (keeper.Journal, "clear_log"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_any_stage_an_erasure_is_completed_later(
    tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = opened(tmp_path / "m")
    service.journal.append([as_post(GIVEN)])
    work_off(service)
    service.engine.save()
    parts = slices(service, 4)
    correct(service, 4, kind="delete")
    work_off(service)
    monkeypatch.setattr(*STAGES[stage], fail)
    with pytest.raises(SystemExit):
        service.engine.save()
    monkeypatch.undo()
    if stage != "before the log is empty":
        assert all(part in bytes_of(tmp_path / "m") for part in parts)
    leave(service)
    again = opened(tmp_path / "m")
    work_off(again)
    again.engine.save()
    assert not any(part in bytes_of(tmp_path / "m") for part in parts)
    assert again.journal.log_is_clear
    assert slices(again, 5)[0] in bytes_of(tmp_path / "m"), "only what was deleted"
    assert_never_saw(again, tmp_path / "n", GIVEN[:3] + GIVEN[4:])
    leave(again)
    for path in (tmp_path / "m" / "checkpoints").iterdir():
        assert checkpoint.load(path)["service"]["applied"] == 25, "neither checkpoint is from before the deletion"


def test_what_a_queued_correction_needs_is_not_pruned(tmp_path: Path) -> None:
    service = Service(tmp_path / "m", OPTIONS, Limits(images=2), Pace())
    for seed in range(3):
        service.journal.append([as_post(examples(4, seed))])
        if seed == 1:
            correct(service, 2, kind="relabel", name="cod", rank="species")
            number = correct(service, 2, kind="delete")
        work_off(service, turns=1 if seed == 1 else 1000)  # the corrections wait
        service.engine.save()
    assert states(service, number) == ["done: None"]
    assert not any(has_image(service.journal, n) for n in range(1, 5)), "later it is"
    leave(service)


# -- over HTTP ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service with 24 observations and a correction, whose tests may run in any order."""
    with running(tmp_path_factory.mktemp("service") / "m", Limits(images=20, queue=60, classes=7)) as client:
        assert post(client, GIVEN).status_code == 202
        until(lambda: client.get("/metrics").json()["learned"] == 24)
        answer = client.patch("/observations/24", json={"name": "pike", "rank": "species"})
        assert (answer.status_code, answer.json()["accepted"]) == (202, 25)
        until(lambda: client.get("/metrics").json()["relabelled"] == 1)
        yield client


def ended(client: httpx.Client, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def is_ended() -> bool:
        found.update(client.get(f"/entries/{number}").json())
        return found["state"] != "queued"

    until(is_ended)
    return found


def test_a_label_is_corrected(client: httpx.Client) -> None:
    wanted = {"number": 25, "kind": "correction", "state": "done", "reason": None, "of": 24}
    assert ended(client, 25) == wanted
    recent = {each["number"]: each for each in client.get("/observations/recent?n=100").json()}
    assert (recent[24]["name"], recent[24]["rank"]) == ("pike", "species")
    assert recent[24]["was"] == {"name": GIVEN[23][1], "rank": GIVEN[23][2]}
    assert recent[23]["was"] is None
    assert "pike" in [node["name"] for node in client.get("/taxonomy").json()["nodes"]]


def test_a_deleted_one_is_erased_and_gone(client: httpx.Client) -> None:
    number = client.delete("/observations/20").json()["accepted"]
    assert ended(client, number)["state"] == "done"
    until(lambda: client.get(f"/entries/{number}").json()["erased"])
    assert client.get("/observations/20/thumbnail").status_code == 404
    assert 20 not in [each["number"] for each in client.get("/observations/recent?n=100").json()]
    for request in (client.delete, lambda path: client.patch(path, json={"name": "cod", "rank": "species"})):
        answer = request("/observations/20")
        assert (answer.status_code, answer.json()) == (410, {"detail": f"observation 20 is deleted by entry {number}"})


def named(count: int, seed: int, **observer: Any) -> dict[str, Any]:
    given = examples(count, seed)
    return {
        "files": [("image", ("x.png", image, "image/png")) for image, *_ in given],
        "data": {"name": [name for _, name, _ in given], "rank": [rank for *_, rank in given]} | observer,
    }


def test_a_batch_of_an_observer_is_undone(client: httpx.Client) -> None:
    before = client.get("/metrics").json()["deleted"]
    first = client.post("/observations", **named(3, 11, observer="Ánna")).json()["accepted"]
    second = client.post("/observations", **named(2, 12, observer=["Ánna", "ben"])).json()["accepted"]
    anonymous = post(client, examples(1, 13)).json()["accepted"]
    assert client.get("/observations/recent?n=2").json()[1]["observer"] == "ben"
    answer = client.delete("/observations", params={"observer": "A\u0301nna"})  # the same, in another form
    assert answer.status_code == 202
    entries = answer.json()["accepted"]
    assert [ended(client, n)["of"] for n in entries] == [second[0], *reversed(first)]
    until(lambda: client.get("/metrics").json()["deleted"] == before + 4)
    assert client.delete("/observations?observer=%C3%81nna").status_code == 404
    range_ = {"first": second[1], "last": anonymous[0]}
    assert len(client.delete("/observations", params=range_).json()["accepted"]) == 2
    until(lambda: client.get(f"/entries/{entries[-1]}").json()["erased"])
    folder: Path = client.service.folder  # type: ignore[attr-defined]
    assert "Ánna".encode() not in bytes_of(folder)
    assert "\\u00c1nna" not in bytes_of(folder).decode("latin1"), "nor as JSON"


def test_observers_are_checked(client: httpx.Client) -> None:
    assert client.post("/observations", **named(3, 1, observer=["a", "b"])).status_code == 422
    assert client.post("/observations", **named(1, 1, observer="\u202e")).status_code == 422
    body = {"observations": [{"image": "AAAA", "name": "a", "rank": "kind", "observer": ""}]}
    assert client.post("/observations", json=body).status_code == 422


RELABEL: dict[str, Any] = {"json": {"name": "cod", "rank": "species"}}
REFUSED: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("PATCH", "/observations/9999", RELABEL, 404, "there is no observation 9999"),
    ("DELETE", "/observations/9999", {}, 404, "there is no observation 9999"),
    ("DELETE", "/observations/25", {}, 404, "there is no observation 25"),
    ("DELETE", "/observations/0", {}, 422, "number"),
    ("PATCH", "/observations/22", {"json": {"name": "cod", "rank": "genus"}}, 422, "the label has an unknown rank"),
    ("PATCH", "/observations/22", {"json": {"name": "cod"}}, 422, "rank"),
    ("PATCH", "/observations/22", {"json": {"name": "eel", "rank": "species"}}, 409, "7 of at most 7 are known"),
    ("DELETE", "/observations", {}, 422, "which observations are to be deleted?"),
    ("DELETE", "/observations", {"params": {"observer": "nobody"}}, 404, "there are no such observations"),
]


@pytest.mark.parametrize(("method", "path", "more", "status", "says"), REFUSED)
def test_what_can_not_be_corrected(
    client: httpx.Client, method: str, path: str, more: dict[str, Any], status: int, says: str
) -> None:
    """Entry 25 is a correction itself."""
    answer = client.request(method, path, **more)
    assert answer.status_code == status
    assert says in answer.json()["detail"]


def test_an_old_one_can_not_be_corrected(tmp_path: Path) -> None:
    with running(tmp_path / "m", Limits(images=2, queue=3)) as client:
        for seed in range(4):
            post(client, examples(3, seed))
            settled(client)
            client.service.engine.save()
        answer = client.delete("/observations/1")
        assert answer.status_code == 410
        assert answer.json() == {"detail": "observation 1 is too old: the newest 2 can be corrected"}
        assert client.delete("/observations/12").status_code == 202
        others = client.delete("/observations?first=1").json()["accepted"]
        assert [client.get(f"/entries/{n}").json()["of"] for n in others] == [11, 10]
