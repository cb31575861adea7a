"""`dhocl serve`: a learner behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dhocl.cli.options import option
from dhocl.errors import InputError

MODEL = "The model"
ACCESS = "Who may reach it"
LOAD = "How much it takes"


def serve(
    model: Annotated[
        Path, option("--model", panel=MODEL, help="Folder of the model: journal and checkpoints. Made if missing.")
    ] = Path("model"),
    levels: Annotated[
        str,
        option("--levels", panel=MODEL, help="Of a new model: its ranks, coarsest first, such as `genus,species`."),
    ] = "",
    tree: Annotated[
        Path | None,
        option("--tree", panel=MODEL, help="Of a new model: a `tree.tsv` that tells what lies above what."),
    ] = None,
    source: Annotated[
        list[str] | None,
        option(
            "--source",
            panel=MODEL,
            help="Whom else to ask: `tree:FILE`, `wordnet:DIR`, `darwin_core:PATH` or `llm`; may be repeated.",
        ),
    ] = None,
    method: Annotated[
        str | None, option("--method", panel=MODEL, help="Of a new model: see `dhocl list methods`; halo by default.")
    ] = None,
    backbone: Annotated[
        str | None,
        option("--backbone", panel=MODEL, help="Likewise: see `dhocl list backbones`; efficientnet_lite0 by default."),
    ] = None,
    image_size: Annotated[
        int | None, option("--image-size", panel=MODEL, help="Likewise: side in pixels at which it looks; 96.")
    ] = None,
    buffer: Annotated[
        int | None, option("--buffer", panel=MODEL, help="Likewise: images that it keeps for replay; 1000.")
    ] = None,
    host: Annotated[
        str, option("--host", panel=ACCESS, help="Address to listen on; one that others can reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, option("--port", panel=ACCESS, min=0, max=65535, help="0: any that is free.")] = 8000,
    token_file: Annotated[
        Path | None,
        option("--token-file", panel=ACCESS, help="File with a secret word that whoever writes must give."),
    ] = None,
    protect_reading: Annotated[
        bool, option("--protect-reading", panel=ACCESS, help="Whoever reads or predicts must give it too.")
    ] = False,
    queue: Annotated[
        int, option("--queue", panel=LOAD, min=1, help="Entries that may wait; then posts are answered 429.")
    ] = 1000,
    batch: Annotated[int, option("--batch", panel=LOAD, min=1, help="Images that a request may hold.")] = 64,
    image_mb: Annotated[int, option("--image-mb", panel=LOAD, min=1, help="Megabytes that an image may have.")] = 8,
    megapixels: Annotated[
        int, option("--megapixels", panel=LOAD, min=1, help="Millions of pixels that an image may have.")
    ] = 25,
    checkpoint_every: Annotated[
        int, option("--checkpoint-every", panel=LOAD, min=1, help="Entries between checkpoints; or each minute.")
    ] = 1000,
) -> None:
    """Learn from observations that arrive over HTTP, and predict at any time.

    A new model: `dhocl serve --model birds --levels family,genus,species`; the next time `dhocl serve --model birds`
    goes on with it. Then post an image with its name and rank:

    `curl -F image=@robin.jpg -F name=Erithacus -F rank=genus http://127.0.0.1:8000/observations`

    and ask what another one shows: `curl -F image=@what.jpg http://127.0.0.1:8000/predict`. The page at `/` shows the
    tree growing, and `/openapi.json` describes the rest; docs/service.md tells more.
    """
    try:
        from dhocl.service.server import start
    except ModuleNotFoundError as error:
        raise InputError(f"the service needs {error.name}: pip install 'dhocl[serve]'") from None
    ranks = [level.strip() for level in levels.split(",")] if levels else None
    if ranks and not all(ranks):
        raise InputError(f"--levels {levels}: expected names, coarsest first, with commas between them")
    options = {
        "levels": ranks,
        "tree": tree,
        "method": method,
        "backbone": backbone,
        "image_size": image_size,
        "buffer": buffer,
    }
    limits = {"queue": queue, "batch": batch, "image_bytes": image_mb * 2**20, "pixels": megapixels * 1_000_000}
    given = {name: value for name, value in options.items() if value is not None}
    start(model, given, source or [], limits, checkpoint_every, host, port, token_file, protect_reading)
