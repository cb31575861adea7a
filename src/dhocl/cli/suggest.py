"""`dhocl suggest`: which photographs to label next."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from dhocl.cli.options import Device
from dhocl.core.errors import InputError

if TYPE_CHECKING:
    from dhocl.classifier.files import Candidates

MOST = 5000  # photographs that are compared: time and memory grow with their square


def suggest(
    model: Annotated[Path, typer.Argument(help="Folder of a model: of `dhocl learn`, a run, a service or `save`.")],
    photos: Annotated[
        list[str], typer.Argument(help="Files, folders, quoted patterns, or a CSV file with a column of paths.")
    ],
    count: Annotated[int, typer.Option(min=1, help="Photographs to suggest.")] = 20,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="CSV file for the list; default: text, on the screen.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the choice among more than 5,000 photographs.")] = 0,
    device: Device = "auto",
) -> None:
    """Find the photographs without a label whose labels would teach the model most, and the rank to name them at.

    The first lines are the best. Of more than 5,000 photographs, 5,000 are drawn at random and compared.

    Fill in the columns `label` and `level` of the CSV file, then learn it: `dhocl learn birds --data list.csv`. The
    column `level` holds the suggested rank; another one may be written.

    `dhocl suggest birds photos --count 20 -o list.csv`
    """
    from dhocl.classifier.files import open_model, suggest_files
    from dhocl.cli.progress import progress, result_of
    from dhocl.core.process import prepare
    from dhocl.core.rng import Rng
    from dhocl.data.photos import Photos

    if out is not None and (out.suffix.lower() != ".csv" or out.is_dir() or not out.parent.is_dir()):
        raise InputError(f"`out` {out}: give the name of a .csv file in a folder that exists")
    prepare()
    classifier, given = open_model(model, device), Photos(photos)
    total = given.count()
    drawn = set(Rng(seed, "suggest").permutation(total)[:MOST].tolist())
    with progress("comparing", len(drawn)) as show:
        paths = (path for row, path in enumerate(given) if row in drawn)
        result = result_of(suggest_files(classifier, paths, count), show)
    if result is None:
        raise InputError(f"none of the {len(drawn)} images can be read: give photographs")
    for problem in result.problems:
        print(f"dhocl: skipped: {problem}", file=sys.stderr)
    with _opened(out) as file:
        _write(result, file, table=out is not None)
    if out is not None:
        print(f"Wrote {out}: {len(result.suggestions)} of {total} images")


@contextmanager
def _opened(out: Path | None) -> Iterator[IO[str]]:
    if out is None:
        yield sys.stdout
        return
    with out.open("w", encoding="utf-8", newline="") as file:
        yield file


def _write(result: Candidates, file: IO[str], table: bool) -> None:
    if not table:
        for found in result.suggestions:
            print(f"{result.paths[found.row]}: {found!r}", file=file)
        return
    writer = csv.writer(file)
    writer.writerow(["path", "label", "level", "predicted", "score", "uncertainty", "novelty"])
    for found in result.suggestions:
        numbers = (f"{number:.4f}" for number in (found.score, found.uncertainty, found.novelty))
        shown = "" if found.prediction is None else repr(found.prediction)
        path = result.paths[found.row]
        writer.writerow([path.absolute() if isinstance(path, Path) else path.address, "", found.level, shown, *numbers])
