"""Deletions in the real process, killed at every stage: the model forgets, and the image is off the disk."""

from __future__ import annotations

from pathlib import Path

import httpx
import torch

from dhocl import Model
from dhocl.core import checkpoint
from dhocl.service.images import decode
from tests.helpers.serving import NEW, as_post, examples, leave, opened, post, settled, started, until

GIVEN = examples(32)


def found_on_disk(folder: Path, number: int, thumbnail: bytes = b"") -> bool:
    """Whether any of several parts of an image is in a file of the journal."""
    content = b"".join(path.read_bytes() for path in folder.glob("journal.sqlite*"))
    pixels = decode(GIVEN[number - 1][0], 32, 10**6).pixels
    return any(pixels[at : at + 24] in content for at in range(0, 3000, 300)) or thumbnail[-80:-40] in (content or b"-")


def state(client: httpx.Client, number: int) -> dict[str, object]:
    found: dict[str, object] = client.get(f"/entries/{number}").json()
    return found


def loaded(folder: Path) -> Model:
    content = checkpoint.load_newest(folder / "checkpoints")
    assert content is not None
    return Model.from_state(content["model"])


def test_a_deletion_survives_kills_and_erases(tmp_path: Path) -> None:
    """Killed when it is accepted, when it is applied, and when it is erased."""
    folder = tmp_path / "m"
    with started("--model", folder, *NEW) as (_, client):
        post(client, GIVEN)
        settled(client)
        thumbnails = {n: client.get(f"/observations/{n}/thumbnail").content for n in (5, 6, 7)}
        assert client.delete("/observations/5").json()["accepted"] == 33
    with started("--model", folder) as (_, client):
        assert client.delete("/observations/6").json()["accepted"] == 34
        until(lambda: state(client, 34)["state"] == "done")
    with started("--model", folder) as (_, client):
        assert client.patch("/observations/8", json={"name": "cod", "rank": "species"}).json()["accepted"] == 35
        assert client.delete("/observations/7").json()["accepted"] == 36
        for number in (33, 34, 36):
            until(lambda number=number: state(client, number).get("erased"))
        numbers = client.get("/metrics").json()
    assert (numbers["learned"], numbers["deleted"], numbers["relabelled"]) == (32, 3, 1)
    for number, thumbnail in thumbnails.items():
        assert not found_on_disk(folder, number, thumbnail)
    assert found_on_disk(folder, 9), "this is how it would be found"
    other = opened(tmp_path / "n")
    other.journal.append([as_post([*GIVEN[:4], *GIVEN[8:], (GIVEN[7][0], "cod", "species")])])
    while other.engine.turn():
        pass
    corrected, never = loaded(folder), other.engine._served.model
    leave(other)
    for name in ("bird", "fish", "robin", "crow", "cod", "carp"):
        sums = []
        for model in (corrected, never):
            label = next(label for label in model.taxonomy if label.name == name)
            sums.append(model.learner.statistics.sums.filled[model.taxonomy.id(label)])  # type: ignore[attr-defined]
        assert torch.allclose(*sums, atol=1e-5), name
