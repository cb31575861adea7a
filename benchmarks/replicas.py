"""Predictions by replicas on Ray Serve, one of which is killed under load.

    nice -n 5 python benchmarks/replicas.py [--replicas 2] [--clients 4] [--seconds 30] [--out FILE]

The model is made here. Clients post one photograph at a time, and repeat a request that ends with a status of 500 or
more, or without an answer. At half time one replica gets SIGKILL. A request has failed if TRIES attempts have.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import typer
from load import photographs
from PIL import Image
from rich.console import Console
from server import Server

from dhocl import Classifier

TRIES = 6
PAUSE = 0.1  # seconds before the second attempt; twice as long before each further one
REPLICA = "ray::ServeReplica"


class Load:
    """Clients that predict all the time, each in its thread."""

    def __init__(self, address: str, images: list[bytes], clients: int) -> None:
        self._address = address
        self._images = images
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(clients)]
        self.answers: dict[int, Any] = {}  # by image
        self.done: list[tuple[float, float, int]] = []  # time of the answer, seconds, attempts
        self.errors: Counter[str] = Counter()  # of attempts
        self.failed = self.different = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        with httpx.Client(base_url=self._address, timeout=60) as client:
            while not self._ending.is_set():
                self._predict(client, int(rng.integers(len(self._images))))

    def _predict(self, client: httpx.Client, image: int) -> None:
        began = time.monotonic()
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            try:
                response = client.post("/predict", files={"image": ("a.jpg", self._images[image], "image/jpeg")})
            except httpx.TransportError as error:
                self.errors[type(error).__name__] += 1
                continue
            if response.status_code < 500:
                now = time.monotonic()
                self.done.append((now, now - began, attempt + 1))
                answer = response.json()
                self.different += answer != self.answers.setdefault(image, answer) or response.status_code != 200
                return
            self.errors[f"status {response.status_code}"] += 1
        self.failed += 1


def make_model(folder: Path, images: list[bytes], backbone: str, size: int) -> None:
    files = [folder.parent / f"{number}.jpg" for number in range(len(images))]
    for file, content in zip(files, images, strict=True):
        file.write_bytes(content)
    classifier = Classifier(["genus", "species"], backbone=backbone, image_size=size)
    labels = [(f"species {number % 8}", "species") for number in range(len(images))]
    classifier.learn([Image.open(file) for file in files], labels)
    classifier.save(folder)


def milliseconds(seconds: list[float], share: float) -> float | None:
    return round(1000 * float(np.quantile(seconds, share)), 1) if seconds else None


def measure(
    replicas: Annotated[int, typer.Option(help="Replicas.")] = 2,
    clients: Annotated[int, typer.Option(help="Requests at once.")] = 4,
    seconds: Annotated[float, typer.Option(help="Length of the load.")] = 30,
    backbone: Annotated[str, typer.Option(help="Backbone.")] = "efficientnet_lite0",
    image_size: Annotated[int, typer.Option(help="Side of the images that the model sees.")] = 96,
    out: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    console, images = Console(stderr=True), photographs(16)
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder) / "m", images, backbone, image_size)
        server = Server(None, "--follow", Path(folder) / "m", "--engine", "ray", "--replicas", replicas)
        try:
            first = server.below(REPLICA)
            load = Load(server.address, images, clients)
            load.start()
            console.print(f"{len(first)} replicas, {seconds:g} seconds of load")
            time.sleep(seconds / 2)
            killed = time.monotonic()
            os.kill(first[0], signal.SIGKILL)
            time.sleep(seconds / 2)
            load.end()
            fresh = httpx.get(f"{server.address}/metrics").json()["replica"]
            again = len(server.below(REPLICA))
        finally:
            code = server.end(signal.SIGTERM)
    before = [seconds for when, seconds, _ in load.done if when < killed]
    after = [seconds for when, seconds, _ in load.done if when >= killed]
    report = {
        "replicas": len(first),
        "replicas at the end": again,
        "requests": len(load.done) + load.failed,
        "failed": load.failed,
        "repeated": sum(attempts > 1 for _, _, attempts in load.done),
        "errors": dict(load.errors),
        "different answers": load.different,
        "per second before and after": [round(len(before) / seconds * 2, 1), round(len(after) / seconds * 2, 1)],
        "p50 ms before and after": [milliseconds(before, 0.5), milliseconds(after, 0.5)],
        "p99 ms before and after": [milliseconds(before, 0.99), milliseconds(after, 0.99)],
        "longest ms": milliseconds(before + after, 1.0),
        "staleness": fresh["staleness"],
        "exit code": code,
    }
    print(json.dumps(report, indent=2))
    if out:
        out.write_text(json.dumps(report))


if __name__ == "__main__":
    typer.run(measure)
