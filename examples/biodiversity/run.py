"""A service learns from observations of birds that arrive one after the other, each identified to some rank.

python examples/biodiversity/run.py [--data DIR] [--observations N]
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import typer
from archive import ARCHIVE, Occurrence, build, read
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dhocl.core.errors import InputError

AT_ONCE = 8  # observations in a request
WAITING = 16  # that may wait before more are posted: the tree is told of new names in turn, behind those
LINES = 10  # that are printed on the way


@contextmanager
def service(*options: object) -> Iterator[str]:
    """Start `dhocl serve` in a separate process. Yields its address."""
    command = [sys.executable, "-c", "from dhocl.cli import main; main()", "serve", *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().removeprefix("dhocl: ").strip()
        if not address:
            sys.exit(process.wait())  # it has said why
        yield address
    finally:
        process.terminate()
        process.wait()


def call(url: str, body: Any = None) -> Any:
    """GET, or POST of JSON. If the queue is full, retry after the time in `Retry-After`."""
    content = None if body is None else json.dumps(body).encode()
    while True:
        try:
            with urlopen(Request(url, content, {"Content-Type": "application/json"})) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code != 429:
                raise SystemExit(f"{url}: {json.load(error)['detail']}") from None
            time.sleep(float(error.headers["Retry-After"]))


def post(address: str, occurrences: list[Occurrence]) -> None:
    observations = [
        {"name": o.name, "rank": o.rank, "image": base64.b64encode(o.image.read_bytes()).decode()} for o in occurrences
    ]
    call(f"{address}/observations", {"observations": observations})


def stream(address: str, occurrences: list[Occurrence]) -> None:
    """Post everything in order, and print the accuracy of the predictions made before learning."""
    columns = (TextColumn("learned"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("", total=len(occurrences))
        posted = told = done = 0
        while done < len(occurrences):
            metrics = call(f"{address}/metrics")
            done = metrics["learned"] + metrics["refused"]
            if posted < len(occurrences) and metrics["queued"] < WAITING:
                post(address, occurrences[posted : posted + AT_ONCE])
                posted += AT_ONCE
            else:
                time.sleep(0.1)
            bar.update(task, completed=done)
            if done * LINES // len(occurrences) > told:
                told = done * LINES // len(occurrences)
                bar.console.print(standing(metrics), highlight=False, soft_wrap=True)


def standing(metrics: dict[str, Any]) -> str:
    ranks = [f"{rank} {100 * n['accuracy']:.1f} %" for rank, n in metrics["ranks"].items() if n["seen"]]
    classes = sum(metrics["classes"].values())
    return f"after {metrics['learned']}, {classes} classes: predicted rightly before learned {', '.join(ranks)}"


def main(
    data: Annotated[
        Path | None, typer.Option(help="Folder with CUB-200-2011; without one, letters are the birds.")
    ] = None,
    observations: Annotated[int, typer.Option(min=30, help="How many.")] = 600,
    out: Annotated[
        Path | None, typer.Option(help="New folder for archive and model; by default a temporary one.")
    ] = None,
    port: Annotated[int, typer.Option(help="Of the service; 0: any that is free.")] = 8000,
    backbone: Annotated[str, typer.Option(help="See `dhocl list backbones`.")] = "efficientnet_lite0",
    stay: Annotated[bool, typer.Option(help="Keep the service running at the end.")] = True,
) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # not without ending the service
    folder = out or Path(tempfile.mkdtemp(prefix="dhocl-biodiversity-"))
    ranks = build(folder, data, observations)
    occurrences = read(folder)
    print(f"{folder / ARCHIVE}: {len(occurrences)} occurrences", flush=True)
    source = f"darwin_core:{folder / ARCHIVE}"
    options = [
        "--levels",
        ",".join(ranks),
        "--source",
        source,
        "--backbone",
        backbone,
        "--image-size",
        96 if data else 64,
    ]
    with service("--model", folder / "model", "--port", port, *options) as address:
        print(f"Watch the tree grow: {address}", flush=True)
        stream(address, occurrences)
        if stay:
            print(f"The page stays at {address} until you press Ctrl-C.", flush=True)
            with suppress(KeyboardInterrupt):
                Event().wait()


if __name__ == "__main__":
    try:
        typer.run(main)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
