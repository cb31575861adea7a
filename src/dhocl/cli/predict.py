"""`dhocl predict`: name photographs."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from dhocl.cli.options import Device
from dhocl.core.errors import InputError, check_least


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model: of `dhocl learn`, a run, a service or `save`.")],
    photos: Annotated[
        list[str], typer.Argument(help="Files, folders, quoted patterns, or a CSV file with a column of paths.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="File for the results: .csv, .json or .jsonl; default: text, on the screen."),
    ] = None,
    confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Least probability of the answer: the deepest rank that reaches it.")
    ] = 0.8,
    top: Annotated[int, typer.Option(help="Classes per rank: the predicted one and its alternatives.")] = 3,
    within: Annotated[
        str | None, typer.Option(help="Only classes of this clade, such as Corvidae or family:Corvidae.")
    ] = None,
    among: Annotated[
        Path | None, typer.Option(help="Only classes listed here: a name per line, or a Darwin Core checklist.")
    ] = None,
    false_alarms: Annotated[
        float, typer.Option(min=0, max=1, help="Share of photographs of known classes that may be called new; 0: none.")
    ] = 0.05,
    decode: Annotated[
        Literal["path", "level"],
        typer.Option(help="path: the ranks lie on one path of the tree; level: each rank by itself."),
    ] = "path",
    device: Device = "auto",
) -> None:
    """Predict what photographs show, at every rank.

    The classes lie on one path of the tree, each with its probability. A rank that is not sure is named with its
    alternatives: `IMG_1.jpg: Corvidae 0.97 > Corvus 0.88; species unsure (Corvus corax 0.51, Corvus corone 0.30)`
    One that looks like none of the known classes is called new: `IMG_2.jpg: Corvidae 0.91; new genus? (Corvus 0.40)`

    A folder of a million images is no problem: they are read in batches, and each result is written at once.

    `dhocl predict birds photos -o names.csv`   `dhocl predict birds 'cards/*/DCIM/*.JPG' --confidence 0.9`
    """
    from dhocl.classifier.files import open_model, predict_files
    from dhocl.cli.progress import progress
    from dhocl.cli.writing import open_writer
    from dhocl.core.process import prepare
    from dhocl.data.photos import Photos

    check_least("top", top, 1)
    prepare()
    classifier, given = open_model(model, device), Photos(photos)
    total, done, skipped = given.count(), 0, 0
    predicted = predict_files(
        classifier, given, decode=decode, top=top, within=within, among=among, false_alarms=false_alarms
    )
    with ExitStack() as stack:
        write = stack.enter_context(open_writer(out, classifier.levels, confidence, top, decode))
        show = stack.enter_context(progress("predicting", total, quiet=out is None and sys.stdout.isatty()))
        try:
            for done, found in enumerate(predicted, 1):
                write(found)
                show(done)
                if found.problem:
                    skipped += 1
                    print(f"dhocl: skipped: {found.problem}", file=sys.stderr)
        except KeyboardInterrupt:
            print(f"dhocl: stopped after {done} of {total} images, whose results are kept", file=sys.stderr)
            raise typer.Exit(130) from None
    if skipped == total:
        raise InputError(f"none of the {total} images can be read: give photographs")
    if out is not None:
        print(f"Wrote {out}: {total} images" + (f", {skipped} of them can not be read" if skipped else ""))
