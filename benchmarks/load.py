"""Throughput of the service in observations per second, and latency of predictions meanwhile, over loopback.

    python benchmarks/load.py [--seconds 60] [--backbone efficientnet_lite0] [--image-size 96] [--out FILE]

Photographs of 500 x 375 pixels are posted eight at a time, as fast as they are accepted. Two clients predict one image
after the other: first while nothing is learned, then during learning.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import typer
from PIL import Image
from soak import Server

POSTED = 8  # images a request
PREDICTORS = 2
CLASSES = 20


def photographs(count: int, seed: int) -> list[bytes]:
    """JPEGs that resemble photographs: smooth colours with noise."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((500, 375))
        grain = rng.normal(0, 8, (375, 500, 3))
        array = (np.asarray(coarse) + grain).clip(0, 255).astype(np.uint8)
        file = BytesIO()
        Image.fromarray(array).save(file, "JPEG", quality=90)
        found.append(file.getvalue())
    return found


def post_all(address: str, images: list[bytes], stop: threading.Event) -> None:
    rng = np.random.default_rng(0)
    with httpx.Client(base_url=address, timeout=60) as client:
        while not stop.is_set():
            chosen = rng.integers(0, len(images), POSTED)
            files = [("image", ("x.jpg", images[i])) for i in chosen]
            data = {"name": [f"class {i % CLASSES}" for i in chosen], "rank": ["species"] * POSTED}
            if client.post("/observations", files=files, data=data).status_code == 429:
                stop.wait(0.2)


def predict_all(address: str, images: list[bytes], seconds: float) -> list[float]:
    """Latency of each request in milliseconds."""
    taken: list[float] = []
    end = time.monotonic() + seconds

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        with httpx.Client(base_url=address, timeout=60) as client:
            while time.monotonic() < end:
                image = images[rng.integers(0, len(images))]
                began = time.perf_counter()
                client.post("/predict", files={"image": ("x.jpg", image)}).raise_for_status()
                taken.append(1000 * (time.perf_counter() - began))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(PREDICTORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


def described(taken: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(taken, [50, 99])
    return {"predictions": len(taken), "p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1)}


def main(
    seconds: Annotated[float, typer.Option(help="How long to measure, each time.")] = 60.0,
    backbone: str = "efficientnet_lite0",
    image_size: int = 96,
    out: Annotated[Path | None, typer.Option(help="Also write the numbers as JSON.")] = None,
) -> None:
    images = photographs(64, 0)
    with tempfile.TemporaryDirectory() as folder:
        options = ["--levels", "species", "--backbone", backbone, "--image-size", image_size, "--queue", 256]
        server = Server(Path(folder) / "model", *options)
        address = server.address
        client = httpx.Client(base_url=address, timeout=60)

        def metrics() -> dict[str, Any]:
            found: dict[str, Any] = client.get("/metrics").json()
            return found

        files = [("image", ("x.jpg", image)) for image in images[:POSTED]]
        client.post("/observations", files=files, data={"name": ["class 0"] * POSTED, "rank": ["species"] * POSTED})
        while metrics()["learned"] < POSTED:
            time.sleep(0.1)
        idle = predict_all(address, images, seconds / 2)
        stop = threading.Event()
        poster = threading.Thread(target=post_all, args=(address, images, stop))
        poster.start()
        while metrics()["queued"] < 128:  # from here on it always has something to learn
            time.sleep(0.05)
        before, began = metrics()["learned"], time.monotonic()
        busy = predict_all(address, images, seconds)
        rate = (metrics()["learned"] - before) / (time.monotonic() - began)
        stop.set()
        poster.join()
        memory = server.peak_megabytes
        server.end(signal.SIGTERM)
    report = {
        "backbone": backbone,
        "image_size": image_size,
        "cores": len(os.sched_getaffinity(0)),
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
        "observations_per_second": round(rate, 1),
        "while_learning": described(busy),
        "while_idle": described(idle),
        "peak_memory_mb": memory,
    }
    print(json.dumps(report, indent=1))
    if out:
        out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
