"""`dhocl merge`: make one model of models that learned apart."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def merge(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="Folders of models: of learn, run, serve or save.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the merged model: a new or an empty one.")],
    sums_only: Annotated[
        bool,
        typer.Option(
            "--sums-only", help="Leave out features of single images. The model predicts, learns on and can be merged."
        ),
    ] = False,
) -> None:
    """Make one model of models that learned apart, as if one had learned all images.

    Two museums: `dhocl merge london paris -o both`

    Classes of the same name and rank become one. A link that contradicts an earlier model is reported and not used. The
    models must have the same ranks, method, backbone, image size and settings. The method must be amber.

    A model to send to another site, without features of single images: `dhocl merge paris -o to_send --sums-only`
    """
    from dhocl.classifier.merging import merge_folders

    console = Console(stderr=True)
    with console.status("Merging") if console.is_terminal else nullcontext():
        merged, contradictions = merge_folders(models, out, sums_only)
    for child, kept, other in contradictions:
        console.print(f"{child.name} is below {kept.name} and not below {other.name}", highlight=False)
    names = " and ".join(str(model) for model in models)
    classes = sum(1 for _ in merged.taxonomy)
    print(f"dhocl: wrote {out} from {names}: {classes:,} classes, {len(contradictions)} contradictions")
