"""The processes that decode, through a service in a process of its own: how often they work, and how they end."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.helpers.pillow import CRASHES, TOILS, watched
from tests.helpers.serving import NEW, descendants, encoded, examples, post, settled, started, until


def predicted(client: httpx.Client, content: bytes) -> httpx.Response:
    return httpx.post(f"{client.base_url}/predict", files={"image": ("x", content)}, timeout=60)


@pytest.mark.parametrize("width", [TOILS, CRASHES], ids=["toils", "crashes"])
def test_a_decode_that_does_not_end_well_is_ended_while_others_go_on(tmp_path: Path, width: int) -> None:
    """Both places for small images are taken by such decodes, one after the other."""
    bad, good = encoded(np.zeros((8, width, 3), dtype=np.uint8)), examples(8)
    environment = watched(tmp_path / "opened")
    second = {"decoding.SECONDS": 1}
    with (
        started("--model", tmp_path / "m", *NEW, constants=second, env=environment) as (process, client),
        ThreadPoolExecutor(2) as others,
    ):
        assert post(client, good).status_code == 202
        settled(client)
        ended = [others.submit(predicted, client, bad), others.submit(post, client, [(bad, "void", "kind")])]
        meanwhile = 0
        while not all(each.done() for each in ended):
            assert predicted(client, good[0][0]).status_code == 200
            assert client.get("/health").json()["status"] == "ok"
            meanwhile += 1
        assert meanwhile > 0
        for each in ended:
            assert each.result().status_code == 422
            assert "takes too long to decode, or crashes the decoder" in each.result().json()["detail"]
        opened = [line.split() for line in (tmp_path / "opened").read_text().splitlines()]
        bad_ones = {int(number) for number, side in opened if int(side) == width}
        assert len(bad_ones) >= 2
        assert not bad_ones & set(descendants(process.pid)), "they are ended"
        assert post(client, good).status_code == 202
        assert settled(client)["learned"] == 16


def test_an_accepted_image_is_decoded_once(tmp_path: Path) -> None:
    """Neither learning, nor thumbnails, nor labels, corrections or a restart decode it again."""
    file = tmp_path / "opened"

    def opened() -> int:
        return len(file.read_text().splitlines())

    with started("--model", tmp_path / "m", *NEW, env=watched(file)) as (process, client):
        given = examples(10)
        assert post(client, given[:4]).status_code == 202
        text = [{"image": base64.b64encode(i).decode(), "name": name, "rank": r} for i, name, r in given[4:8]]
        assert client.post("/observations", json={"observations": text}).status_code == 202
        settled(client)
        assert opened() == 8
        pooled = client.post("/images", files=[("image", ("x", image)) for image, _, _ in given[8:]]).json()["accepted"]
        assert opened() == 10
        until(lambda: client.get("/suggestions").json()["considered"] == 2, 60)
        assert client.get(f"/images/{pooled[0]}/thumbnail").status_code == 200
        assert client.post(f"/images/{pooled[0]}/label", json={"name": "cod", "rank": "species"}).status_code == 202
        assert client.patch("/observations/1", json={"name": "carp", "rank": "species"}).status_code == 202
        assert settled(client)["learned"] == 9
        for each in client.get("/observations/recent").json():
            assert client.get(each["thumbnail"]).status_code == 200
        assert opened() == 10
        assert predicted(client, given[0][0]).status_code == 200
        assert opened() == 11
        assert str(process.pid) not in {line.split()[0] for line in file.read_text().splitlines()}
        process.kill()
    with started("--model", tmp_path / "m", env=watched(file)) as (process, client):
        assert settled(client)["learned"] == 9
        assert opened() == 11
