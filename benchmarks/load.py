"""The service compared with the bare work inside it: observations per second, and latency of predictions.

    python benchmarks/load.py [--rounds 3] [--seconds 15] [--image-size 96] [--out FILE]

Service, clients and bare work alternate on the same cores, so that their ratios can be compared. Photographs have
500 x 375 pixels, labels three ranks. Bare learning is `Classifier.learn` on decoded images; a bare prediction decodes
one photograph and predicts it. With `--observations 100000 --classes 1000`, memory is measured after so many.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import httpx
import numpy as np
import typer
from PIL import Image
from rich.console import Console
from server import Server

from dhocl import Classifier
from dhocl.core.photo import square
from dhocl.core.process import prepare

RANKS = ("family", "genus", "species")
POSTED = 8  # images per request
CLIENTS = 2  # that post, and that predict
BATCH = 32
FILL = 5.0  # seconds until the queue should have filled


def photographs(count: int, seed: int = 0, width: int = 500, height: int = 375) -> list[bytes]:
    """JPEGs that resemble photographs: smooth colours with noise."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((width, height))
        grain = rng.normal(0, 8, (height, width, 3))
        array = (np.asarray(coarse) + grain).clip(0, 255).astype(np.uint8)
        file = BytesIO()
        Image.fromarray(array).save(file, "JPEG", quality=90)
        found.append(file.getvalue())
    return found


def path(species: int) -> tuple[str, str, str]:
    """A species with its genus and family: ten to a genus, five genera to a family."""
    return f"family {species // 50}", f"genus {species // 10}", f"species {species}"


def write_tree(file: Path, classes: int) -> None:
    paths = [path(species) for species in range(classes)]
    links = {(child, RANKS[level], up) for found in paths for level, (up, child) in enumerate(pairwise(found), 1)}
    lines = ["child\tlevel\tparent", *(f"{family}\tfamily\t" for family in {found[0] for found in paths})]
    file.write_text("\n".join([*lines, *map("\t".join, sorted(links))]) + "\n")


class Labels:
    """Random labels of any rank."""

    def __init__(self, classes: int, seed: int) -> None:
        self._classes = classes
        self._rng = np.random.default_rng(seed)

    def draw(self, count: int) -> list[tuple[str, str]]:
        species, ranks = self._rng.integers(0, self._classes, count), self._rng.integers(0, len(RANKS), count)
        return [(path(int(s))[rank], RANKS[rank]) for s, rank in zip(species, ranks, strict=True)]


class Bare:
    """The work of the service without the service."""

    def __init__(self, images: list[bytes], size: int, tree: Path, classes: int) -> None:
        self._classifier = Classifier(list(RANKS), image_size=size, tree=tree)
        self._images, self._size = images, size
        self._arrays = np.stack([square(BytesIO(image), size, "it") for image in images])
        self._labels = Labels(classes, 1)
        self._rng = np.random.default_rng(1)

    def learn(self, seconds: float = 0.0, least: int = 0) -> float:
        """Observations per second."""
        began, count = time.perf_counter(), 0
        while count < least or time.perf_counter() - began < seconds:
            arrays = self._arrays[self._rng.integers(0, len(self._arrays), BATCH)]
            self._classifier.learn(arrays, self._labels.draw(BATCH))
            count += BATCH
        return count / (time.perf_counter() - began)

    def predict(self, seconds: float) -> list[float]:
        """Milliseconds of each prediction."""
        reader, taken, end = self._classifier.reader(), [], time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            image = self._images[self._rng.integers(0, len(self._images))]
            reader.predict([square(BytesIO(image), self._size, "it")])
            taken.append(1000 * (time.perf_counter() - began))
        return taken


class Clients:
    """Post observations to a service, and ask it for predictions."""

    def __init__(self, address: str, images: list[bytes], classes: int) -> None:
        self._address, self._images, self._classes = address, images, classes
        self._client = httpx.Client(base_url=address, timeout=60)

    def metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.get("/metrics").json()
        return found

    def _post(self, stop: threading.Event, seed: int) -> None:
        rng, labels = np.random.default_rng(seed), Labels(self._classes, seed)
        with httpx.Client(base_url=self._address, timeout=60) as client:
            while not stop.is_set():
                files = [("image", ("x.jpg", self._images[i])) for i in rng.integers(0, len(self._images), POSTED)]
                names, ranks = zip(*labels.draw(POSTED), strict=True)
                answer = client.post("/observations", files=files, data={"name": names, "rank": ranks})
                if answer.status_code == 429:
                    stop.wait(float(answer.headers["Retry-After"]))

    def _ask(self, end: float, seed: int, taken: list[float]) -> None:
        rng = np.random.default_rng(seed)
        with httpx.Client(base_url=self._address, timeout=60) as client:
            while (began := time.perf_counter()) < end:
                image = self._images[rng.integers(0, len(self._images))]
                client.post("/predict", files={"image": ("x.jpg", image)}).raise_for_status()
                taken.append(1000 * (time.perf_counter() - began))

    def learn(self, seconds: float = 0.0, least: int = 0, asking: bool = False) -> tuple[float, list[float]]:
        """Observations per second, and milliseconds of predictions meanwhile, one client asking."""
        stop, taken = threading.Event(), []
        posters = [threading.Thread(target=self._post, args=(stop, seed)) for seed in range(CLIENTS)]
        for poster in posters:
            poster.start()
        ready = time.perf_counter() + FILL
        while self.metrics()["queued"] < 2 * BATCH and time.perf_counter() < ready:
            time.sleep(0.05)  # from then on there is always something to learn, unless it learns faster than they post
        before, began = self.metrics()["learned"], time.perf_counter()
        if asking:
            self._ask(began + seconds, 0, taken)
        while self.metrics()["learned"] - before < least or time.perf_counter() - began < seconds:
            time.sleep(0.2)
        rate = (self.metrics()["learned"] - before) / (time.perf_counter() - began)
        stop.set()
        for poster in posters:
            poster.join()
        while self.metrics()["queued"]:
            time.sleep(0.1)
        return rate, taken

    def predict(self, seconds: float) -> list[float]:
        """Milliseconds of predictions, while nothing is learned."""
        taken: list[float] = []
        self._ask(time.perf_counter() + seconds, 0, taken)
        return taken


def percentile(taken: list[float], share: float) -> float:
    return float(np.percentile(taken, share))


def measure(bare: Bare, clients: Clients, seconds: float) -> dict[str, float]:
    """One round."""
    alone, (learning, _) = bare.learn(seconds), clients.learn(seconds)
    plain, idle = bare.predict(seconds / 2), clients.predict(seconds / 2)
    _, busy = clients.learn(seconds, asking=True)
    least = median(plain)
    return {
        "bare_observations_per_second": alone,
        "observations_per_second": learning,
        "learning_ratio": learning / alone,
        "bare_prediction_ms": least,
        "p50_ratio_at_rest": percentile(idle, 50) / least,
        "p99_ratio_at_rest": percentile(idle, 99) / least,
        "p50_ratio_while_learning": percentile(busy, 50) / least,
        "p99_ratio_while_learning": percentile(busy, 99) / least,
    }


def main(
    rounds: Annotated[int, typer.Option(help="Each measures everything once.")] = 3,
    seconds: Annotated[float, typer.Option(help="Duration of a measurement.")] = 15.0,
    image_size: Annotated[int, typer.Option(help="Side of the images that the model learns.")] = 96,
    classes: Annotated[int, typer.Option(help="Species; each tenth is a genus.")] = 100,
    first: Annotated[int, typer.Option(help="Observations before anything is measured.")] = 512,
    observations: Annotated[int, typer.Option(help="Learned before the end, to measure memory.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the numbers as JSON.")] = None,
) -> None:
    prepare()
    images = photographs(64)
    status = Console(stderr=True).status("starting")
    with tempfile.TemporaryDirectory() as folder, status:
        tree = Path(folder) / "tree.tsv"
        write_tree(tree, classes)
        options = ["--levels", ",".join(RANKS), "--tree", tree, "--image-size", image_size, "--queue", 512]
        server = Server(Path(folder) / "model", *options)
        clients, bare = Clients(server.address, images, classes), Bare(images, image_size, tree, classes)
        bare.learn(least=first)
        clients.learn(least=first)
        found = []
        for number in range(rounds):
            status.update(f"round {number + 1} of {rounds}, about {rounds * seconds * 4:.0f} s in all")
            found.append(measure(bare, clients, seconds))
        report = {name: round(median(each[name] for each in found), 2) for name in found[0]} if found else {}
        while (learned := clients.metrics()["learned"]) < observations:
            status.update(f"{learned:,} of {observations:,} observations learned")
            clients.learn(least=min(2000, observations - learned))
        report |= {"learned": clients.metrics()["learned"], "memory_mb": server.megabytes()}
        report["peak_memory_mb"] = server.megabytes("VmHWM")
        server.end(signal.SIGTERM)
    report |= {"cores": len(os.sched_getaffinity(0)), "image_size": image_size, "classes": classes}
    print(json.dumps(report, indent=1))
    if out:
        out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
