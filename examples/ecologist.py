"""A day with photographs: learn, evaluate, predict, serve, correct, ask what to label next, back up and restore.

python examples/ecologist.py [FOLDER]

Each command and request is printed before it is run. The script stops at the first one that fails, or whose result is
not what the text beside it says. FOLDER is new or empty; by default it is a temporary one. Characters of the data set
`glyphs` stand in for photographs, so nothing is downloaded. `--backbone tiny` takes seconds and predicts badly.
"""

from __future__ import annotations

import base64
import csv
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import typer

from dhocl.core.errors import InputError

HERE = Path(__file__).resolve().parent
DHOCL = [sys.executable, "-c", "from dhocl.cli import main; main()"]
LEFT = {"name": "← LEFTWARDS ARROW", "rank": "character"}
UP = {"name": "↑ UPWARDS ARROW", "rank": "character"}


def main(
    folder: Annotated[Path | None, typer.Argument(help="New or empty folder; default: a temporary one.")] = None,
    backbone: Annotated[str, typer.Option(help="See `dhocl list backbones`.")] = "efficientnet_lite0",
) -> None:
    where = folder or Path(tempfile.mkdtemp(prefix="dhocl-day-"))
    where.mkdir(parents=True, exist_ok=True)
    if any(where.iterdir()):
        raise InputError(f"{where} is not empty: name a new folder")
    os.chdir(where)
    morning(backbone)
    evening(*afternoon())
    print(f"\nAll is in {where}; the page is {where / 'birds' / 'evaluation.html'}")


def morning(backbone: str) -> None:
    """At the desk, with files."""
    title("A folder of photographs; some are named by a coarse rank only")
    run([sys.executable, HERE / "characters.py", "photos"], "python examples/characters.py photos")
    rows = table("photos/labels.csv")
    assert {row["level"] for row in rows} == {"script", "base", "character"}

    title("Learn them, except those that are marked as test")
    dhocl(f"learn birds --data photos --image-size 64 --backbone {backbone}")
    title("Evaluate the model on the test photographs, with a page of its worst mistakes")
    dhocl("evaluate birds --data photos")
    result = json.loads(Path("birds/evaluation.json").read_text(encoding="utf-8"))
    assert result["images"] == sum(row["split"] == "test" for row in rows)
    chance = {"script": 1 / 3, "base": 1 / 6, "character": 1 / 12}
    assert all(rank["accuracy"] > 100 * chance[rank["level"]] for rank in result["ranks"])
    assert "The worst mistakes" in Path("birds/evaluation.html").read_text(encoding="utf-8")

    title("Name the new photographs, in a table")
    dhocl("predict birds new -o names.csv")
    names = table("names.csv")
    assert len(names) == len(photographs())
    assert all(float(name["script_probability"]) >= float(name["character_probability"]) for name in names)
    for name in names[::12]:
        print(f"  {name['path']}: {name['answer'] or 'unsure'} {name['probability']}")


def afternoon() -> tuple[int, Any]:
    """With a service, to which observers post. Returns its last entry, and what it predicts after that."""
    title("Serve a copy of the model: from now on, the copy learns from what observers post")
    dhocl("backup birds served")
    with service("serve --model served --port 0") as address:
        title("An observer posts a photograph with a wrong name; it is corrected, later deleted")
        (number,) = post(address, photographs("leftwards-arrow-0"), UP, "anna")
        assert settled(address, number)["state"] == "done"
        patch = call("PATCH", f"{address}/observations/{number}", LEFT)["accepted"]
        assert settled(address, patch)["state"] == "done"
        (newest,) = call("GET", f"{address}/observations/recent?n=1")
        assert (newest["number"], newest["name"]) == (number, LEFT["name"])
        gone = call("DELETE", f"{address}/observations/{number}")["accepted"]
        assert settled(address, gone)["state"] == "done"
        while not call("GET", f"{address}/entries/{gone}", quiet=True)["erased"]:
            time.sleep(0.05)
        print("  its image is off the disk")

        title("Another observer has mistaken everything: the batch is undone")
        numbers = post(address, photographs("white-square"), LEFT, "ben")
        assert settled(address, numbers[-1])["state"] == "done"
        undone = call("DELETE", f"{address}/observations?observer=ben")["accepted"]
        assert len(undone) == len(numbers) == 4
        assert [settled(address, each)["state"] for each in undone] == ["done"] * 4
        assert call("GET", f"{address}/metrics")["deleted"] == 5

        title("Photographs without a name: which one should be named next?")
        pool = call("POST", f"{address}/images", {"images": [encoded(photo) for photo in photographs()]})["accepted"]
        (first,) = call("GET", f"{address}/suggestions?count=1")["suggestions"]
        photo = photographs()[pool.index(first["id"])]
        print(f"  {photo}: name its {first['rank']}; perhaps {first['guess']['name']}?")
        label = {"name": shown_by(photo), "rank": "character"}
        named = call("POST", f"{address}/images/{first['id']}/label", label)["accepted"]
        assert settled(address, named)["state"] == "done"
        rest = call("GET", f"{address}/suggestions?count=100")
        assert rest["pool"] == len(pool) - 1
        assert first["id"] not in [each["id"] for each in rest["suggestions"]]

        title("Back up while it runs")
        before = predict(address)
        dhocl("backup served backup")
        return named, before


def evening(last: int, before: Any) -> None:
    title("The machine is lost. Serve the backup: it predicts the same")
    with service("serve --model backup --port 0") as address:
        assert settled(address, last)["state"] == "done"  # what is newer than the checkpoint is learned again first
        assert predict(address) == before
        metrics = call("GET", f"{address}/metrics")
        assert (metrics["deleted"], metrics["queued"]) == (5, 0)
    print("  the same, to the last digit")


def title(text: str) -> None:
    print(f"\n# {text}", flush=True)


def dhocl(words: str) -> None:
    run([*DHOCL, *shlex.split(words)], f"dhocl {words}")


def run(command: list[Any], shown: str) -> None:
    print(f"$ {shown}", flush=True)
    if code := subprocess.run(command).returncode:
        raise SystemExit(code)  # it has said why


@contextmanager
def service(words: str) -> Iterator[str]:
    """`dhocl serve` in a process of its own. Yields its address."""
    print(f"$ dhocl {words} &", flush=True)
    with open("service.log", "a") as log:
        process = subprocess.Popen([*DHOCL, *shlex.split(words)], stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().removeprefix("dhocl: ").strip()
        if not address:
            raise SystemExit(f"the service did not start: {Path('service.log').read_text()}")
        yield address
    finally:
        process.terminate()
        process.wait()


def call(method: str, url: str, body: Any = None, quiet: bool = False) -> Any:
    """A request with JSON, and its answer."""
    content = None if body is None else json.dumps(body).encode()
    if not quiet:
        print(f"> {method} /{url.split('/', 3)[3]}", flush=True)
    try:
        with urlopen(Request(url, content, {"Content-Type": "application/json"}, method=method)) as answer:
            return json.load(answer)
    except HTTPError as error:
        raise SystemExit(f"{method} {url}: {json.load(error)['detail']}") from None


def post(address: str, photos: list[Path], label: dict[str, str], observer: str) -> list[int]:
    """Post photographs with the same label. Returns the numbers of the observations."""
    observations = [{"image": encoded(photo), "observer": observer, **label} for photo in photos]
    numbers: list[int] = call("POST", f"{address}/observations", {"observations": observations})["accepted"]
    return numbers


def settled(address: str, number: int) -> Any:
    """An entry, once it no longer waits."""
    while (entry := call("GET", f"{address}/entries/{number}", quiet=True))["state"] == "queued":
        time.sleep(0.05)
    return entry


def predict(address: str) -> Any:
    return call("POST", f"{address}/predict", {"images": [encoded(photo) for photo in photographs()]})


def photographs(start: str = "") -> list[Path]:
    """The new ones, whose names start like this."""
    return sorted(Path("new").glob(f"{start}*.png"))


def shown_by(photo: Path) -> str:
    """The character on a new photograph, as a person would see it."""
    first = f"{photo.stem.rpartition('-')[0]}-00.png"
    return next(row["label"] for row in table("photos/labels.csv") if row["path"] == first)


def table(file: str) -> list[dict[str, str]]:
    with open(file, newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def encoded(photo: Path) -> str:
    return base64.b64encode(photo.read_bytes()).decode()


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    try:
        app()
    except InputError as problem:
        print(problem, file=sys.stderr)
        sys.exit(2)
