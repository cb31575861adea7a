"""`dhocl evaluate`: compare predictions with labels."""

from __future__ import annotations

import sys
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from PIL import Image
from rich.console import Console
from rich.table import Table

from dhocl.cli.options import Device
from dhocl.core.errors import InputError

if TYPE_CHECKING:
    from dhocl.classifier import Evaluation
    from dhocl.classifier.files import Judgement

SHEET = 24  # mistakes that are shown
THUMBNAIL = 160  # pixels


def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder of a model: of `dhocl learn`, a run, a service or `save`.")],
    data: Annotated[Path, typer.Option(help="Photographs with labels, as for `dhocl learn`.")],
    out: Annotated[
        Path | None, typer.Option(help="Page to write; default: evaluation.html in the folder of the model.")
    ] = None,
    decode: Annotated[
        Literal["path", "level"],
        typer.Option(help="path: the ranks lie on one path of the tree; level: each rank by itself."),
    ] = "path",
    device: Device = "auto",
) -> None:
    """Measure how well a model names photographs, and write a page and a JSON file.

    If rows of the table are marked `split` test, only these are evaluated: `dhocl learn` leaves them out.

    The page shows accuracy and calibration of each rank, precision and recall of each class, which classes are
    confused, and the photographs with the worst mistakes. The JSON file beside it has the same numbers.
    """
    from dhocl.classifier.files import evaluate_files, open_model
    from dhocl.cli.progress import progress, result_of
    from dhocl.core.process import prepare
    from dhocl.data.album import open_album
    from dhocl.report.evaluation import write_evaluation

    page = out or model / "evaluation.html"
    if page.suffix.lower() not in (".html", ".htm") or page.is_dir() or (out and not page.parent.is_dir()):
        raise InputError(f"`out` {page}: give the name of a .html file in a folder that exists")
    prepare()
    classifier = open_model(model, device)
    photos = open_album(data, classifier.levels).photos
    photos = [photo for photo in photos if photo.test] or photos
    with progress("evaluating", len(photos)) as show:
        result = result_of(evaluate_files(classifier, photos, decode=decode), show)
    if result is None:
        raise InputError(f"none of the {len(photos)} images can be read: nothing was evaluated")
    for problem in result.problems:
        print(f"dhocl: skipped: {problem}", file=sys.stderr)
    config = classifier.model.config
    about = {"model": str(model), "data": str(data), "method": config.method, "decoding": decode}
    content = about | result.evaluation.to_json() | {"skipped": result.problems}
    for mistake in content["mistakes"]:
        mistake["image"] = str(result.photos[mistake["row"]].path)
    write_evaluation(page, content, _sheet(result))
    console = Console()
    console.print(_table(result.evaluation))
    for line in (_whole(result.evaluation), f"Page: {page}"):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _sheet(result: Judgement) -> list[dict[str, Any]]:
    """The photographs with the worst mistakes, as `write_evaluation` takes them."""
    from dhocl.core.photo import square

    shown = []
    for mistake in result.evaluation.mistakes[:SHEET]:
        path, file = result.photos[mistake.row].path, BytesIO()
        Image.fromarray(square(path, THUMBNAIL, str(path))).save(file, "JPEG", quality=80)
        uri = f"data:image/jpeg;base64,{b64encode(file.getvalue()).decode()}"
        shown.append(mistake._asdict() | {"image": str(path), "uri": uri})
    return shown


def _table(evaluation: Evaluation) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("rank", "images", "accuracy %", "ECE %"):
        table.add_column(column, justify="left" if column == "rank" else "right")
    for rank in evaluation.ranks:
        numbers = ("-" if number is None else f"{number:.1f}" for number in (rank.accuracy, rank.ece))
        table.add_row(rank.level, str(rank.images), *numbers)
    return table


def _whole(evaluation: Evaluation) -> str:
    """What is not of one rank."""
    numbers = {"mistake severity": evaluation.ms, "hierarchical F1 %": evaluation.h_f1}
    parts = [f"{name} {value:.2f}" for name, value in numbers.items() if value is not None]
    if unknown := sum(rank.unknown for rank in evaluation.ranks):
        parts.append(f"labels of classes that were never learned: {unknown}")
    return ", ".join(parts)
