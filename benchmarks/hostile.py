"""Valid requests to a service that is attacked at the same time.

    python benchmarks/hostile.py [--minutes 10] [--out FILE]

Attackers keep connections silent, send headers and bodies byte by byte or in tiny chunks, stall near the end of the
largest bodies, never read events, wait by the hundred for images to be decoded, poll suggestions and examples, and post
images and JSON that cost much. All of them have one address, and a process of their own. Valid clients at another
address learn, predict and read meanwhile, also with photographs of 12 megapixels. Printed are the latency of valid
requests, the number of responses by status, and the memory of the service, every ten seconds.

The exit code is 1, and a line says why, if a valid request failed, a response was a 5xx, the p99 of valid requests is
above 1 s, no attack was answered, something accepted was not learned, the service did not end well, or memory grew by
more than 10 %: the median of the last third, compared with that of the first.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import signal
import socket
import struct
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import typer
from load import photographs
from PIL import Image
from rich.console import Console
from server import Server

VALID_EVERY = 0.25  # seconds between the requests of a valid client
LARGE_EVERY = 1.0  # the same, with large photographs
SILENT, LISTENERS, CHUNKERS, WAITING, POLLING = 60, 30, 4, 300, 3
VALID, HOSTILE = "127.0.0.2", "127.0.0.1"  # addresses of the clients
CHUNKS = 50_000 * b"1\r\nx\r\n"
STALLED = 8  # bodies, which would take all memory for bodies
STALLED_EVERY = 15.0  # seconds until a client sends the next one, of 34 MB
LARGEST = 32 * 2**20  # bytes of a body
SLOWEST = 1000  # milliseconds of the p99 of valid requests
GROWTH = 1.1  # of memory
EVERY = 10.0  # seconds between two measurements of memory
JSON = {"Content-Type": "application/json"}


def encoded(image: np.ndarray | Image.Image, kind: str, **more: Any) -> bytes:
    file = BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, kind, **more)
    return file.getvalue()


def bombs() -> dict[str, bytes]:
    """Small files that cost much to decode, or claim to."""
    black = np.zeros((5000, 5000, 3), dtype=np.uint8)
    progressive = encoded(black, "JPEG", progressive=True)
    scan = progressive[progressive.rindex(b"\xff\xda") : -2]
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0))
    text = _chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(50_000_000), 9))
    small = encoded(black[:8, :8], "PNG")
    frames = [Image.fromarray(black[:500, :500])] * 50
    animated = BytesIO()
    frames[0].save(animated, "WEBP", save_all=True, append_images=frames[1:])
    pixels = encoded(black, "WEBP", lossless=True)
    return {
        "25 megapixels, WebP": pixels,
        "25 megapixels, WebP of 8 MB": pixels.ljust(8 * 2**20, b"\0"),
        "4 megapixels, PNG": encoded(black[:2000, :2000], "PNG"),
        "25 megapixels, JPEG of 32 scans": progressive[:-2] + 22 * scan + progressive[-2:],
        "JPEG of 3,000 scans": progressive[:-2] + 3000 * scan + progressive[-2:],
        "PNG of 900 megapixels": b"\x89PNG\r\n\x1a\n" + header + _chunk(b"IDAT", zlib.compress(bytes(10**7))),
        "PNG with 50 MB of text": small[:33] + text + small[33:],
        "animated WebP": animated.getvalue(),
        "CMYK": encoded(Image.new("CMYK", (2000, 2000)), "JPEG"),
        "16 bit": encoded(np.zeros((2000, 2000), dtype=np.uint16), "PNG"),
        "truncated": progressive[: len(progressive) // 2],
    }


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


class Clients:
    """Threads that repeat what they do until the end, valid and hostile ones."""

    def __init__(self, address: str, seconds: float) -> None:
        self.address = address
        self.latency: dict[str, list[float]] = {}
        self.statuses: Counter[str] = Counter()
        self._end = time.monotonic() + seconds
        self._valid: list[threading.Thread] = []

    def repeat(self, what: Callable[[httpx.Client], httpx.Response | None], valid: str = "", every: float = 0) -> None:
        def work() -> None:
            transport = httpx.HTTPTransport(local_address=VALID if valid else HOSTILE)
            client = httpx.Client(base_url=self.address, transport=transport, timeout=60)
            while time.monotonic() < self._end:
                began = time.perf_counter()
                try:
                    self._count(valid or "hostile", what(client), time.perf_counter() - began)
                except (httpx.HTTPError, OSError) as error:
                    self.statuses[f"{'valid' if valid else 'hostile'} {type(error).__name__}"] += 1
                time.sleep(every)

        thread = threading.Thread(target=work, daemon=True)  # hostile ones may wait for long
        thread.start()
        if valid:
            self._valid.append(thread)

    def _count(self, who: str, answer: httpx.Response | None, seconds: float) -> None:
        if answer is not None:
            self.statuses[f"{'hostile' if who == 'hostile' else 'valid'} {answer.status_code}"] += 1
            if who != "hostile":
                self.latency.setdefault(who, []).append(seconds)

    @property
    def running(self) -> bool:
        return time.monotonic() < self._end

    def join(self) -> None:
        """Wait for the valid clients."""
        for thread in self._valid:
            thread.join()


def drip(address: str, start: bytes, piece: bytes) -> None:
    """A request that does not end, piece by piece. An empty piece sends and reads nothing."""
    host = urlsplit(address)
    with socket.create_connection((host.hostname, host.port), timeout=60) as connection, suppress(OSError):
        connection.sendall(start)
        for _ in range(60):  # longer than any limit of the service
            connection.sendall(piece)
            time.sleep(1)


def ask(address: str, request: bytes) -> None:
    """A request that waits for the beginning of its response."""
    host = urlsplit(address)
    with socket.create_connection((host.hostname, host.port), timeout=60) as connection:
        connection.sendall(request)
        connection.recv(100)


def attack(address: str, seconds: float, images: dict[str, bytes]) -> Counter[str]:
    """The statuses of the responses. A process of its own: valid clients must not wait for the threads of attackers."""
    clients = Clients(address, seconds)
    attackers(clients, images)
    while clients.running:
        time.sleep(0.1)
    return Counter(clients.statuses)


def attackers(clients: Clients, images: dict[str, bytes]) -> None:
    address = clients.address
    post = b"POST /observations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n"
    post += b"Content-Type: application/json\r\n\r\n"
    for _ in range(SILENT):
        clients.repeat(lambda _: drip(address, b"", b""))
    for start, piece in (
        (b"GET / HTTP/1.1\r\nX: ", b"x"),
        (post, b" "),
        (b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
    ):
        for _ in range(LISTENERS):
            clients.repeat(lambda _, start=start, piece=piece: drip(address, start, piece))
    stalled = post.replace(b"900000", b"%d" % LARGEST) + bytes(LARGEST - 100)
    for _ in range(STALLED):
        clients.repeat(lambda _: drip(address, stalled, b" "), every=STALLED_EVERY)
    chunked = post.replace(b"Content-Length: 900000", b"Transfer-Encoding: chunked")
    for _ in range(CHUNKERS):
        clients.repeat(lambda _: drip(address, chunked, CHUNKS), every=0.2)
    bomb = {"image": ("x", images["25 megapixels, WebP"])}
    posted = httpx.Request("POST", f"{address}/predict", files=bomb)
    lines = [b"%s: %s\r\n" % each for each in posted.headers.raw]
    waiting = b"POST /predict HTTP/1.1\r\n" + b"".join(lines) + b"\r\n" + posted.read()
    for _ in range(WAITING):
        clients.repeat(lambda _: ask(address, waiting), every=1)
    like = {"name": "species 0", "rank": "species"}
    usual = {"image": ("x.jpg", photographs(1)[0])}
    for _ in range(POLLING):
        clients.repeat(lambda client: client.get("/suggestions"))
        clients.repeat(lambda client: client.post("/examples", params=like, files=usual))
        clients.repeat(lambda client: client.post("/images", files=8 * list(usual.items())), every=0.2)
    for content in images.values():
        files = {"image": ("x", content)}
        clients.repeat(lambda client, files=files: client.post("/predict", files=files), every=0.5)
        clients.repeat(
            lambda client, files=files: client.post(
                "/observations", files=files, data={"name": "bomb", "rank": "kind"}
            ),
            every=0.5,
        )
    large = b'{"kind":"link","child":' + b"[" * 10_000_000
    clients.repeat(lambda client: client.post("/taxonomy", content=large, headers=JSON), every=1)
    values = b'{"images":[' + b'"",' * 2_000_000 + b'""]}'
    clients.repeat(lambda client: client.post("/predict", content=values, headers=JSON), every=1)
    clients.repeat(lambda client: client.get("/observations/1/thumbnail"), every=0.05)
    odd = {"Content-Type": "multipart/form-data; boundary=x; charset=undefined"}
    clients.repeat(lambda client: client.post("/predict", content=b"--x\r\n", headers=odd), every=0.2)
    clients.repeat(lambda client: client.post("/taxonomy", content=b"{}", headers={"Origin": "http://[::1"}), every=0.2)


def use(clients: Clients, photos: list[bytes], large: bytes) -> None:
    rng = np.random.default_rng(0)

    def observe(client: httpx.Client) -> httpx.Response:
        chosen = rng.integers(0, len(photos), 2)
        files = [("image", ("x.jpg", photos[i])) for i in chosen]
        data = {"name": [f"species {i % 20}" for i in chosen], "rank": ["species"] * 2}
        return client.post("/observations", files=files, data=data)

    clients.repeat(observe, "observe", VALID_EVERY)
    for _ in range(2):
        clients.repeat(
            lambda client: client.post(
                "/predict", files={"image": ("x.jpg", photos[int(rng.integers(0, len(photos)))])}
            ),
            "predict",
            VALID_EVERY,
        )
    files = {"image": ("x.jpg", large)}
    labelled = {"name": "species 0", "rank": "species"}
    clients.repeat(lambda client: client.post("/predict", files=files), "predict 12 megapixels", LARGE_EVERY)
    clients.repeat(
        lambda client: client.post("/observations", files=files, data=labelled), "observe 12 megapixels", LARGE_EVERY
    )
    for path in ("/health", "/metrics", "/taxonomy", "/observations/recent?n=20"):
        clients.repeat(lambda client, path=path: client.get(path), f"GET {path.partition('?')[0]}", VALID_EVERY)


def main(
    minutes: Annotated[float, typer.Option(help="How long to attack.")] = 10.0,
    out: Annotated[Path | None, typer.Option(help="Also write the numbers as JSON.")] = None,
) -> None:
    photos = photographs(32)
    (large,) = photographs(1, width=4000, height=3000)
    with (
        tempfile.TemporaryDirectory() as folder,
        Console(stderr=True).status(f"attacking for {minutes:g} minutes"),
        ProcessPoolExecutor(1, mp.get_context("spawn")) as pool,
    ):
        images = pool.submit(bombs).result()  # which also starts the process of the attackers
        server = Server(Path(folder) / "model", "--levels", "kind,species", "--image-size", 64)
        with httpx.Client(base_url=server.address, timeout=60) as client:
            files = {"image": ("x.jpg", photos[0])}
            client.post("/observations", files=files, data={"name": "species 0", "rank": "species"}).raise_for_status()
            while client.get("/metrics").json()["learned"] < 1:
                time.sleep(0.1)
        attacking = pool.submit(attack, server.address, 60 * minutes, images)
        clients = Clients(server.address, 60 * minutes)
        use(clients, photos, large)
        memory = []
        while clients.running:
            time.sleep(min(EVERY, 60 * minutes / 12))
            memory.append(server.megabytes())
        clients.join()
        clients.statuses += attacking.result()
        counts = settled(server.address)
        code = server.end(signal.SIGTERM)
    found = {
        name: {"requests": len(taken), **{f"p{p}_ms": round(1000 * float(np.percentile(taken, p))) for p in (50, 99)}}
        for name, taken in clients.latency.items()
    }
    report = {
        "valid": found,
        "statuses": dict(sorted(clients.statuses.items())),
        "memory_mb": memory,
        "accepted": counts["accepted"],
        "learned": counts["learned"],
        "exit_code": code,
    }
    print(json.dumps(report, indent=1))
    if out:
        out.write_text(json.dumps(report, indent=1) + "\n")
    if found_wrong := problems(report):
        Console(stderr=True).print("; ".join(found_wrong))
        raise typer.Exit(1)


def settled(address: str) -> dict[str, Any]:
    """The metrics once nothing is queued."""
    while True:
        found: dict[str, Any] = httpx.get(f"{address}/metrics", timeout=60).json()
        if not found["queued"]:
            return found
        time.sleep(0.5)


def problems(report: dict[str, Any]) -> list[str]:
    """What the service must not do under attack, and did."""
    statuses, memory = report["statuses"], report["memory_mb"]
    failed = {what: count for what, count in statuses.items() if what.startswith("valid") and " 2" not in what}
    broken = {what: count for what, count in statuses.items() if " 5" in what}
    slow = {what: figures["p99_ms"] for what, figures in report["valid"].items() if figures["p99_ms"] > SLOWEST}
    lost = report["accepted"] - report["learned"]
    third = max(1, len(memory) // 3)
    early, late = median(memory[:third]), median(memory[-third:])
    return [
        *(f"{count} responses: {what}" for what, count in {**failed, **broken}.items()),
        *(f"{what}: p99 is {milliseconds} ms" for what, milliseconds in slow.items()),
        *([] if any(what.startswith("hostile 4") for what in statuses) else ["no attack was answered"]),
        *([f"{lost} accepted images were not learned"] if lost else []),
        *([f"the exit code is {report['exit_code']}"] if report["exit_code"] else []),
        *([f"memory grew from {early:g} to {late:g} MB"] if late > GROWTH * early else []),
    ]


if __name__ == "__main__":
    typer.run(main)
