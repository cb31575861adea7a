"""`dhocl learn`: learn photographs with labels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dhocl.cli.options import NEW, BackboneName, Device, ImageSize, Method, PrecisionName, Tree, option, ranks
from dhocl.core.errors import InputError

if TYPE_CHECKING:
    from dhocl.classifier.learning import Progress

BULK = "Many images"


class Engine(StrEnum):
    online = "online"
    local = "local"
    ray = "ray"


def learn(
    model: Annotated[Path, typer.Argument(help="Folder of the model; created if there is none.")],
    data: Annotated[
        Path,
        typer.Option(
            help="Photographs with labels: a folder with labels.csv, folders named by class, a Darwin Core archive, "
            "Parquet files, or a CSV file with a column of paths or addresses."
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
    precision: PrecisionName = None,
    seed: Annotated[int | None, option("--seed", panel=NEW, help="Of the order of the images; default: 0.")] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Images between checkpoints; default: 1,000, at once 20,000 or more. Online, at least one per minute.",
        ),
    ] = None,
    engine: Annotated[
        Engine,
        option(
            "--engine",
            panel=BULK,
            help="online: one image after the other; local: all at once, here; ray: all at once, on a cluster.",
        ),
    ] = Engine.online,
    address: Annotated[
        str | None,
        option("--address", panel=BULK, help="Address of a Ray cluster; default: one is started on this machine."),
    ] = None,
    workers: Annotated[
        int, option("--workers", panel=BULK, min=0, help="Processes on the cluster; 0: one per core or GPU.")
    ] = 0,
    device: Device = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="No output except warnings and errors.")] = False,
) -> None:
    """Learn photographs with labels: make a model, or go on with one.

    Images in folders named by class: `dhocl learn birds --data photos --levels family,species`, with
    `photos/species/robin/1.jpg` or `photos/Turdidae/robin/1.jpg`.

    A table: `photos/labels.csv` with the columns path, label and level, or path and one column for each rank. Commas,
    semicolons and tabs separate columns. With a column `time`, images are learned in that order.

    Repeat the command after an interruption, or when photographs were added: each image is learned once. Images that
    can not be read are listed and skipped. Rows with `split` test are left for `dhocl evaluate`.

    Many images: `dhocl learn birds --data photos --engine ray --address HOST:6379`. Their order has no effect. The
    model is one like any other: it predicts, is served and learns on.
    """
    from dhocl.cli.progress import progress
    from dhocl.core.process import prepare

    prepare()
    given = {
        "levels": ranks(levels),
        "tree": tree,
        "method": method,
        "backbone": backbone,
        "image_size": image_size,
        "precision": precision,
        "seed": seed,
        "device": device,
    }
    options = {key: value for key, value in given.items() if value is not None}
    skipped = 0
    with _learning(model, data, options, checkpoint_every, engine, address, workers) as steps:
        now = next(steps)
        try:
            with progress("learning", now.total, quiet) as show:
                for now in steps:
                    skipped += len(now.problems)
                    show(now.done)
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


@contextmanager
def _learning(
    model: Path,
    data: Path,
    options: dict[str, Any],
    every: int | None,
    engine: Engine,
    address: str | None,
    workers: int,
) -> Iterator[Iterator[Progress]]:
    if (address or workers) and engine is not Engine.ray:
        raise InputError("--address and --workers are for a cluster: add --engine ray")
    if engine is Engine.online:
        from dhocl.classifier.learning import learn_album

        yield learn_album(model, data, options, every or 1000)
        return
    from dhocl.bulk.learning import EVERY, learn_in_bulk, locally

    if engine is Engine.local:
        yield learn_in_bulk(model, data, options, partial(locally, device=options["device"]), every or EVERY)
        return
    from dhocl.bulk.on_ray import ray_engine

    with ray_engine(address, workers) as on_ray:
        yield learn_in_bulk(model, data, options, on_ray, every or on_ray.every)
