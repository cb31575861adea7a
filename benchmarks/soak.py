"""Kill the service repeatedly under load, and check that each accepted observation is learned exactly once.

    python benchmarks/soak.py [--method amber] [--kills 200] [--posters 3] [--out FILE]

All posted images differ, and the model's ledger is made large enough for the hashes of all of them. The last checkpoint
therefore shows how often each image was learned, independently of the service's counters. The learner is compared with
the ledger: its memory of images if it replays, else its own count. If the service is killed before it responds, the
image may be learned once or not at all.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import torch
import typer
from PIL import Image
from server import Server
from torch import Tensor

from dhocl.core import checkpoint
from dhocl.nn.ledger import content_keys

SIZE = 16
KINDS = ("bird", "fish", "moss")
LARGE = {"nn.ledger.REMEMBERED": 10**9}


class Posters:
    """Threads that post until they are stopped, and record the responses."""

    def __init__(self, count: int, most: int) -> None:
        self.address = ""
        self.posted: set[int] = set()  # hashes of images
        self.accepted: dict[int, int] = {}  # number -> hash
        self.linked: set[str] = set()
        self.full = 0
        self._left = most
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(seed,)) for seed in range(count)]
        for thread in self._threads:
            thread.start()

    @property
    def busy(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _work(self, seed: int) -> None:
        rng, client = np.random.default_rng(seed), httpx.Client(timeout=60)
        while not self._stopping.is_set() and self._left > 0:
            images = rng.integers(0, 256, (int(rng.integers(1, 9)), SIZE, SIZE, 3), dtype=np.uint8)
            kind = int(rng.integers(0, len(KINDS)))
            child = f"{KINDS[kind]} {rng.integers(0, 5)}"
            try:
                self._post(client, images, child, KINDS[kind], deep=bool(rng.random() < 0.7))
            except (httpx.HTTPError, ValueError):
                time.sleep(0.05)  # it was killed, or is not up yet

    def _post(self, client: httpx.Client, images: np.ndarray, child: str, kind: str, deep: bool) -> None:
        keys = _keys(torch.from_numpy(images).permute(0, 3, 1, 2))
        with self._lock:
            self.posted.update(keys)
        name, rank = (child, "species") if deep else (kind, "kind")
        files = [("image", ("x.png", _png(image))) for image in images]
        answer = client.post(
            f"{self.address}/observations",
            files=files,
            data={"name": [name] * len(images), "rank": [rank] * len(images)},
        )
        if answer.status_code == 429:
            self.full += 1
            time.sleep(0.2)
        if answer.status_code != 202:
            return
        with self._lock:
            self._left -= len(images)
            self.accepted |= dict(zip(answer.json()["accepted"], keys, strict=True))
        known = {node["name"] for node in client.get(f"{self.address}/taxonomy").json()["nodes"]}
        if {child, kind} <= known and child not in self.linked:
            below, above = {"name": child, "rank": "species"}, {"name": kind, "rank": "kind"}
            link = {"kind": "link", "child": below, "parent": above}
            if client.post(f"{self.address}/taxonomy", json=link).status_code == 202:
                self.linked.add(child)


def _png(image: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def _keys(x: Tensor) -> list[int]:
    """(n, 3, size, size) -> hashes, as in the ledger."""
    return [int(key) for key in content_keys(x)]


def _learned(folder: Path) -> tuple[Counter[int], dict[str, Any], bool]:
    """How often each image was learned, the counters of the service, and whether the learner itself has as many."""
    state = checkpoint.load_newest(folder / "checkpoints")
    assert state is not None
    learned, learner = Counter(state["model"]["ledger"]["keys"].tolist()), state["model"]["learner"]
    if "window" in learner:  # amber
        same = learner["window"]["seen"] == learned.total()
    else:
        same = Counter(_keys(learner["memory"]["columns"]["x"])) == learned
    return learned, state["service"], same


def _verdict(posters: Posters, metrics: dict[str, Any], tree: dict[str, Any], folder: Path) -> dict[str, bool]:
    learned, service, same = _learned(folder)
    nodes = {node["id"]: node for node in tree["nodes"]}
    parents = {n["name"]: nodes[n["parent"]]["name"] if n["parent"] is not None else None for n in nodes.values()}
    return {
        "accepted equals learned": metrics["accepted"] == metrics["learned"] == service["learned"] == learned.total(),
        "the learner has what the ledger has": same,
        "nothing accepted is lost": all(learned[key] == 1 for key in posters.accepted.values()),
        "nothing is learned twice": max(learned.values(), default=0) <= 1,
        "nothing is learned that was not posted": learned.keys() <= posters.posted,
        "numbers are given once": len(posters.accepted) == len(set(posters.accepted.values())),
        "the tree is consistent": all(
            (node["rank"] == "kind") == (node["name"] in KINDS) and parents[node["name"]] in (None, node["name"][:4])
            for node in nodes.values()
        ),
        "accepted links are there": all(parents[child] == child[:4] for child in posters.linked),
    }


def main(
    kills: Annotated[int, typer.Option(help="Number of kills.")] = 200,
    posters: Annotated[int, typer.Option(help="Concurrent clients.")] = 3,
    longest: Annotated[float, typer.Option(help="Most seconds from the first accepted observation to the kill.")] = 3.0,
    most: Annotated[int, typer.Option(help="Largest number of observations.")] = 100_000,
    queue: Annotated[int, typer.Option(help="Entries that may wait.")] = 500,
    every: Annotated[int, typer.Option(help="Entries between checkpoints.")] = 100,
    seed: int = 0,
    method: Annotated[str, typer.Option(help="amber, or one that replays images, such as er.")] = "amber",
    out: Annotated[Path | None, typer.Option(help="Also write the numbers as JSON.")] = None,
) -> None:
    rng = random.Random(seed)
    options = [
        "--method",
        method,
        "--levels",
        "kind,species",
        "--backbone",
        "tiny",
        "--image-size",
        SIZE,
        "--buffer",
        200_000,
    ]
    options += ["--queue", queue, "--checkpoint-every", every]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        crowd = Posters(posters, most)
        began = time.monotonic()
        for kill in range(kills):
            server, before = Server(folder, *options, constants=LARGE), len(crowd.accepted)
            crowd.address = server.address
            while rng.random() < 0.99 and crowd.busy and len(crowd.accepted) == before:
                time.sleep(0.05)  # most of the time something is accepted; sometimes it does not come to that
            time.sleep(rng.uniform(0, longest))
            server.end(signal.SIGKILL)
            print(f"\rkill {kill + 1} of {kills}, {len(crowd.accepted)} accepted", end="", file=sys.stderr, flush=True)
        server = Server(folder, *options, constants=LARGE)
        crowd.address = server.address
        time.sleep(1)
        crowd.stop()
        client = httpx.Client(base_url=server.address, timeout=60)
        while (metrics := client.get("/metrics").json())["queued"] or metrics["learned"] < metrics["accepted"]:
            time.sleep(0.2)
        tree = client.get("/taxonomy").json()
        code = server.end(signal.SIGTERM)
        verdict = _verdict(crowd, metrics, tree, folder) | {"it ends well": code == 0}
        size = sum(file.stat().st_size for file in folder.glob("journal.sqlite*"))
    report = {
        "method": method,
        "kills": kills,
        "seconds": round(time.monotonic() - began),
        "accepted": metrics["accepted"],
        "learned": metrics["learned"],
        "answers that were lost": metrics["accepted"] - len(crowd.accepted),
        "answers 429": crowd.full,
        "journal in MB": round(size / 2**20, 1),
        **verdict,
    }
    print("\n" + "\n".join(f"{name:40} {value}" for name, value in report.items()))
    if out:
        out.write_text(json.dumps(report, indent=1) + "\n")
    if not all(verdict.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
