"""Keep the small files of finished runs, a compressed file per run, so that the results can be made again from them.

    python benchmarks/archive.py pack runs/results          # to benchmarks/runs; a packed run is not packed again
    python benchmarks/archive.py unpack runs/results        # then: dhocl report runs/results --pages docs/results

`dhocl sweep` with `--out runs/results` then makes only the runs that are missing. Checkpoints are left out, and so are
the places of data sets. The same run gives the same bytes.
"""

from __future__ import annotations

import io
import json
import lzma
import shutil
import tarfile
from pathlib import Path
from typing import Annotated

import typer

from dhocl.experiment.record import Record
from dhocl.experiment.sweep import SweepFolder, portable

ARCHIVE = Path(__file__).parent / "runs"
FILES = ("config.json", "curve.jsonl", "summary.json")
MORE = {  # recipe -> further files that its figures need
    "prototype_structure": ("matrices*.safetensors", "taxonomy.jsonl"),
    "tree_growth": ("taxonomy.jsonl",),
}

app = typer.Typer(help=__doc__, rich_markup_mode="markdown")
Sweep = Annotated[Path, typer.Argument(help="Folder of the sweep.")]
Archive = Annotated[Path, typer.Option(help="Folder of the packed runs.")]


@app.command()
def pack(sweep: Sweep, archive: Archive = ARCHIVE) -> None:
    """Add the finished runs of a sweep to the archive."""
    folder = SweepFolder(sweep)
    wanted: dict[str, set[str]] = {}
    for recipe in folder.recipes:
        for entry in folder.read(recipe)[1]:
            wanted.setdefault(entry.run, set(FILES)).update(MORE.get(recipe, ()))
    (archive / "recipes").mkdir(parents=True, exist_ok=True)
    for plan in (sweep / "recipes").glob("*.json"):
        shutil.copyfile(plan, archive / "recipes" / plan.name)
    for name, patterns in sorted(wanted.items()):
        record, packed = Record(sweep / "runs" / name), archive / f"{name}.tar.xz"
        if record.finished and not packed.exists():
            packed.write_bytes(compressed(record, sorted(patterns)))


@app.command()
def unpack(sweep: Sweep, archive: Archive = ARCHIVE) -> None:
    """Put all runs of the archive into the folder of a sweep. Runs that are there are kept."""
    shutil.copytree(archive / "recipes", sweep / "recipes", dirs_exist_ok=True)
    for packed in sorted(archive.glob("*.tar.xz")):
        folder = sweep / "runs" / packed.name.removesuffix(".tar.xz")
        if not Record(folder).finished:
            folder.mkdir(parents=True, exist_ok=True)
            with tarfile.open(packed) as files:
                files.extractall(folder, filter="data")


def compressed(record: Record, patterns: list[str]) -> bytes:
    """The files of a run, without dates and owners."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as files:
        for path in sorted(path for pattern in patterns for path in record.folder.glob(pattern)):
            text = path.read_bytes()
            if path.name == "config.json":
                described = record.describe() | {"config": portable(record.config()).to_json()}
                text = (json.dumps(described, indent=1) + "\n").encode()
            entry = tarfile.TarInfo(path.name)
            entry.size = len(text)
            files.addfile(entry, io.BytesIO(text))
    return lzma.compress(content.getvalue(), preset=9)


if __name__ == "__main__":
    app()
