"""`dhocl serve`: an HTTP service that learns and predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from dhocl.cli.configured import read_config
from dhocl.cli.options import NEW, BackboneName, Device, ImageSize, Method, Tree, option, ranks
from dhocl.core.errors import InputError

MODEL = "Model"
ACCESS = "Access"
LOAD = "Limits"
OPERATION = "Operation"


def serve(
    model: Annotated[
        Path,
        option(
            "--model", panel=MODEL, help="Folder of a service, a finished run or a saved classifier; else a new one."
        ),
    ] = Path("model"),
    levels: Annotated[
        str,
        option("--levels", panel=NEW, help="Its ranks, coarsest first, such as `genus,species`."),
    ] = "",
    tree: Tree = None,
    source: Annotated[
        list[str] | None,
        option(
            "--source",
            panel=MODEL,
            help="Knowledge source for classes that --tree does not have: `tree:FILE`, `wordnet:DIR`, "
            "`darwin_core:PATH` or `llm`; may be repeated.",
        ),
    ] = None,
    method: Method = None,
    backbone: BackboneName = None,
    image_size: ImageSize = None,
    buffer: Annotated[int | None, option("--buffer", panel=NEW, help="Images kept for replay; default: 1000.")] = None,
    host: Annotated[
        str,
        option(
            "--host", panel=ACCESS, help="Address to listen on; one that other machines can reach needs --token-file."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, option("--port", panel=ACCESS, min=0, max=65535, help="Port to listen on; 0 for any free one.")
    ] = 8000,
    token_file: Annotated[
        Path | None,
        option("--token-file", panel=ACCESS, help="File with a secret token that requests to write must send."),
    ] = None,
    protect_reading: Annotated[
        bool, option("--protect-reading", panel=ACCESS, help="Require the token to read and predict, too.")
    ] = False,
    queue: Annotated[
        int, option("--queue", panel=LOAD, min=1, help="Entries that may wait to be learned; more get status 429.")
    ] = 1000,
    batch: Annotated[int, option("--batch", panel=LOAD, min=1, help="Largest number of images in a request.")] = 64,
    image_mb: Annotated[int, option("--image-mb", panel=LOAD, min=1, help="Largest image file in MB.")] = 8,
    megapixels: Annotated[
        int, option("--megapixels", panel=LOAD, min=1, help="Largest image in millions of pixels.")
    ] = 25,
    max_classes: Annotated[
        int,
        option("--max-classes", panel=LOAD, min=1, help="Classes of all ranks and synonyms; more get status 409."),
    ] = 10_000,
    keep_images: Annotated[
        int,
        option(
            "--keep-images",
            panel=LOAD,
            min=100,
            help="Newest images to keep, so that their observations can be corrected; older ones are deleted.",
        ),
    ] = 10_000,
    pool: Annotated[
        int,
        option("--pool", panel=LOAD, min=1, help="Images kept without a label, to be suggested; the oldest leave."),
    ] = 2000,
    checkpoint_every: Annotated[
        int,
        option("--checkpoint-every", panel=LOAD, min=1, help="Entries between checkpoints; at least one per minute."),
    ] = 1000,
    device: Device = "auto",
    log_format: Annotated[
        Literal["text", "json"], option("--log-format", panel=OPERATION, help="Form of the lines on standard error.")
    ] = "text",
    access_log: Annotated[bool, option("--access-log", panel=OPERATION, help="Log every request.")] = False,
    config: Annotated[
        Path | None,
        option(
            "--config",
            panel=OPERATION,
            help="TOML file with options, such as `port = 8001`.",
            is_eager=True,
            callback=read_config,
        ),
    ] = None,
) -> None:
    """Serve a model over HTTP that learns from observations and predicts.

    Create a model: `dhocl serve --model birds --levels family,genus,species`. Later, `dhocl serve --model birds`
    continues it.

    Send an image with its name and rank:
    `curl -F image=@robin.jpg -F name=Erithacus -F rank=genus http://127.0.0.1:8000/observations`

    Predict another image: `curl -F image=@what.jpg http://127.0.0.1:8000/predict`

    The page at `/` shows the tree, the one at `/docs` describes all requests.

    Every option can also be set in the file of --config, by its name without dashes in front, as in
    `image-mb = 4`, or in the environment, as in `DHOCL_SERVE_IMAGE_MB=4`. A flag has priority over the environment,
    the environment over the file.
    """
    try:
        from dhocl.service.logs import configure
        from dhocl.service.server import start
    except ModuleNotFoundError as error:
        raise InputError(f"the service needs {error.name}: pip install 'dhocl[serve]'") from None
    options = {
        "levels": ranks(levels),
        "tree": tree,
        "method": method,
        "backbone": backbone,
        "image_size": image_size,
        "buffer": buffer,
        "device": device,
    }
    limits = {
        "queue": queue,
        "batch": batch,
        "image_bytes": image_mb * 2**20,
        "pixels": megapixels * 1_000_000,
        "classes": max_classes,
        "images": keep_images,
        "pool": pool,
    }
    given = {name: value for name, value in options.items() if value is not None}
    configure(log_format, access_log)
    start(model, given, source or [], limits, checkpoint_every, host, port, token_file, protect_reading)
