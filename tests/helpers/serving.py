"""A service for the tests: with the tiny backbone, on a free port of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image

from dhocl.checks import LEAVES, pictures
from dhocl.service.bodies import Limits
from dhocl.service.images import decode
from dhocl.service.journal import Post
from dhocl.service.keeper import Pace
from dhocl.service.server import configured
from dhocl.service.service import Service
from tests.helpers import small_runs


class Client(httpx.Client):
    """With a way behind the scenes."""

    service: Service


OPTIONS = {"levels": ["kind", "species"], "backbone": "tiny", "image_size": 32, "buffer": 50}


def opened(folder: Path, limits: Limits | None = None, pace: Pace | None = None, **more: Any) -> Service:
    return Service(folder, OPTIONS, limits or Limits(), pace or Pace(), **more)


def leave(service: Service) -> None:
    """As if killed: nothing is written any more, and the folder is free."""
    service.journal.close()
    service._lock.close()


@contextmanager
def running(
    folder: Path, limits: Limits | None = None, token: str | None = None, protect_reading: bool = False, **more: Any
) -> Iterator[Client]:
    """A client of a service that runs in a thread."""
    service = opened(folder, limits, **more)
    server = uvicorn.Server(configured(service, token, protect_reading))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            client.service = service
            yield client
    finally:
        service.live.close()
        server.should_exit = True
        thread.join()


def until(true: Callable[[], Any], seconds: float = 600) -> None:
    """Wait for it; a generous end so that a busy machine does not fail a test."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def encoded(array: np.ndarray, kind: str = "PNG", **more: Any) -> bytes:
    file = BytesIO()
    Image.fromarray(array).save(file, kind, **more)
    return file.getvalue()


def examples(n: int, seed: int = 0) -> list[tuple[bytes, str, str]]:
    """Images of birds and fish with name and rank, every other one named by its kind only."""
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, 4, n).tolist()
    images = pictures(leaves, rng).permute(0, 2, 3, 1).numpy()
    labels = [
        (LEAVES[leaf], "species") if place % 2 else (("bird", "fish")[leaf // 2], "kind")
        for place, leaf in enumerate(leaves)
    ]
    return [(encoded(image), *label) for image, label in zip(images, labels, strict=True)]


def post(client: httpx.Client, given: Sequence[tuple[bytes, str, str]]) -> httpx.Response:
    files = [("image", ("x.png", image, "image/png")) for image, _, _ in given]
    return client.post(
        "/observations", files=files, data={"name": [n for _, n, _ in given], "rank": [r for _, _, r in given]}
    )


def as_post(given: Sequence[tuple[bytes, str, str]], size: int = 32) -> Post:
    """Observations as the journal takes them."""
    contents = [{"name": name, "rank": rank} for _, name, rank in given]
    return Post("observation", contents, [decode(image, size, 10**6) for image, _, _ in given])


def settled(client: httpx.Client) -> dict[str, Any]:
    """The metrics once nothing waits any more."""
    found: dict[str, Any] = {}

    def empty() -> bool:
        found.update(client.get("/metrics").json())
        return found["queued"] == 0 and found["learned"] + found["refused"] == found["accepted"]

    until(empty)
    return found


def applied(client: httpx.Client, numbers: Sequence[int]) -> list[str]:
    """The states of entries once none of them waits any more, and their effect can be read."""
    found: list[str] = []

    def none_queued() -> bool:
        found[:] = [client.get(f"/entries/{number}").json()["state"] for number in numbers]
        return "queued" not in found

    until(none_queued)
    return found


TREE = {"robin": "bird", "crow": "bird", "cod": "fish", "carp": "fish"}


@contextmanager
def taught_service(folder: Path) -> Iterator[httpx.Client]:
    """A service that has learned birds and fish and their tree."""
    with running(folder / "m") as client:
        for seed in range(8):
            assert post(client, examples(24, seed)).status_code == 202
        settled(client)
        for child, parent in TREE.items():
            link(client, child, parent)
        settled(client)
        yield client


def link(client: httpx.Client, child: str, parent: str) -> httpx.Response:
    body = {"kind": "link", "child": {"name": child, "rank": "species"}, "parent": {"name": parent, "rank": "kind"}}
    return client.post("/taxonomy", json=body)


def names(client: httpx.Client) -> dict[str, str | None]:
    """Class -> parent."""
    nodes = client.get("/taxonomy").json()["nodes"]
    by_id = {node["id"]: node["name"] for node in nodes}
    return {node["name"]: by_id.get(node["parent"]) for node in nodes}


START = "from dhocl.cli import main; main()"
NEW = ["--levels", "kind,species", "--backbone", "tiny", "--image-size", "32"]


def command(*arguments: object, constants: Mapping[str, float | str] | None = None) -> list[str]:
    """`constants`: other values, or code, for what the service is made of, such as {"live.GUARANTEED": 1.0}."""
    changes = "".join(
        f"import dhocl.service.{name.partition('.')[0]}; dhocl.service.{name} = {value}; "
        for name, value in (constants or {}).items()
    )
    return [sys.executable, "-c", changes + START, "serve", *map(str, arguments)]


@contextmanager
def started(
    *arguments: object, port: int = 0, constants: Mapping[str, float | str] | None = None, **more: Any
) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """`more`: arguments of Popen, such as `stderr`."""
    given = command(*arguments, "--port", port, constants=constants)
    process = subprocess.Popen(given, stdout=subprocess.PIPE, text=True, **more)
    try:
        assert process.stdout is not None
        told = (line for line in process.stdout if line.startswith("dhocl: "))  # Ray may write lines of its own
        address = next(told, "").removeprefix("dhocl: ").strip()
        with httpx.Client(base_url=address, timeout=None) as client:
            yield process, client
    finally:
        process.kill()
        process.wait()


def family(process: int) -> list[int]:
    """A process and those that it has started."""
    children = Path(f"/proc/{process}/task").glob("*/children")
    return [process, *(int(child) for file in children for child in file.read_text().split())]


def descendants(process: int) -> dict[int, str]:
    """Processes that it, or one below it, has started, with their commands."""
    found: dict[int, str] = {}
    for child in family(process)[1:]:
        with suppress(OSError):  # it has ended
            found |= {child: Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")} | descendants(child)
    return found


def peak(process: int) -> int:
    """The most memory that a process and those it has started had so far, in megabytes."""
    texts = [Path(f"/proc/{each}/status").read_text() for each in family(process)]
    return sum(int(text.split("VmHWM:")[1].split()[0]) // 1024 for text in texts)


def spent(process: int) -> float:
    """Processor time of a process and those it has started so far, in seconds."""
    fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in family(process)]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def mistake(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `dhocl serve` says to arguments that it refuses: one line, and nothing else."""
    code, out, said = small_runs.command(capsys, monkeypatch, "serve", *arguments, "--port", "0")
    assert (code, out, said.count("\n")) == (2, "", 1)
    return said
