"""`dhocl learn`: learn photographs with labels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dhocl.cli.options import NEW, BackboneName, ImageSize, Method, Tree, option, ranks
from dhocl.core.errors import InputError


def learn(
    model: Annotated[Path, typer.Argument(help="Folder of the model; created if there is none.")],
    data: Annotated[
        Path,
        typer.Option(
            help="Photographs with labels: a folder with labels.csv, folders named by class, a Darwin Core archive, or "
            "a CSV file with a column of paths."
        ),
    ],
    levels: Annotated[
        str,
        option(
            "--levels",
            panel=NEW,
            help="Its ranks, coarsest first, such as `genus,species`; default: those of the data, if these are known "
            "ranks or there is a `tree.tsv`.",
        ),
    ] = "",
    tree: Tree = None,
    method: Method = None,
    backbone: BackboneName = None,
    image_size: ImageSize = None,
    seed: Annotated[int | None, option("--seed", panel=NEW, help="Of the order of the images; default: 0.")] = None,
    checkpoint_every: Annotated[
        int, typer.Option(min=1, help="Images between checkpoints; at least one per minute.")
    ] = 1000,
    quiet: Annotated[bool, typer.Option("--quiet", help="No output except warnings and errors.")] = False,
) -> None:
    """Learn photographs with labels: make a model, or go on with one.

    Images in folders named by class: `dhocl learn birds --data photos --levels family,species`, with
    `photos/species/robin/1.jpg` or `photos/Turdidae/robin/1.jpg`.

    A table: `photos/labels.csv` with the columns path, label and level, or path and one column for each rank. Commas,
    semicolons and tabs separate columns. With a column `time`, images are learned in that order.

    Repeat the command after an interruption, or when photographs were added: each image is learned once. Images that
    can not be read are listed and skipped. Rows with `split` test are left for `dhocl evaluate`.
    """
    from dhocl.classifier.learning import learn_album
    from dhocl.cli.progress import progress
    from dhocl.core.process import prepare

    prepare()
    given = {
        "levels": ranks(levels),
        "tree": tree,
        "method": method,
        "backbone": backbone,
        "image_size": image_size,
        "seed": seed,
    }
    steps = learn_album(
        model, data, {key: value for key, value in given.items() if value is not None}, checkpoint_every
    )
    now = next(steps)
    skipped = 0
    try:
        with progress("learning", now.total, quiet) as show:
            for now in steps:
                skipped += len(now.problems)
                show(now.learned + skipped)
                for problem in now.problems:
                    print(f"dhocl: skipped: {problem}", file=sys.stderr)
    except KeyboardInterrupt:
        kept = f"{now.saved} of {now.total} images are in {model}"
        print(f"dhocl: stopped; {kept}; the same command learns the others", file=sys.stderr)
        raise typer.Exit(130) from None
    if now.total and not now.learned:
        raise InputError(f"none of the {now.total} images can be read: nothing was learned")
    if not quiet:
        parts = [f"learned {now.learned} image{'' if now.learned == 1 else 's'}"]
        parts += [f"skipped {skipped} that can not be read"] if skipped else []
        parts += [f"{now.before} were learned before"] if now.before else []
        text = f"{model}: {', '.join(parts)}; {repr(now.classifier).removeprefix('Classifier')[1:-1]}"
        Console().print(text, soft_wrap=True, markup=False, highlight=False)
