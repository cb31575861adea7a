"""`dhocl serve`: an HTTP service that learns and predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from dhocl.cli.configured import read_config
from dhocl.cli.options import NEW, BackboneName, Device, ImageSize, Method, PrecisionName, Tree, option, ranks
from dhocl.core.errors import InputError

MODEL = "Model"
REPLICA = "Replica"
ACCESS = "Access"
LOAD = "Limits"
OPERATION = "Operation"


def serve(
    model: Annotated[
        Path | None,
        option(
            "--model",
            panel=MODEL,
            help="Folder of a service, a finished run or a saved classifier; else a new one; default: `model`.",
        ),
    ] = None,
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
    follow: Annotated[
        str,
        option(
            "--follow",
            panel=REPLICA,
            help="Predict with each new checkpoint of another service: the folder of its model, or its address. It is "
            "sent the token of --token-file.",
        ),
    ] = "",
    read_only: Annotated[
        bool, option("--read-only", panel=REPLICA, help="Refuse writes; so does every service with --follow.")
    ] = False,
    writer: Annotated[
        str,
        option(
            "--writer", panel=REPLICA, help="Address that refused writes name; default: that of --follow, if it is one."
        ),
    ] = "",
    engine: Annotated[
        Literal["local", "ray"],
        option("--engine", panel=REPLICA, help="`ray`: many replicas on a Ray cluster, by Ray Serve."),
    ] = "local",
    address: Annotated[
        str, option("--address", panel=REPLICA, help="A running Ray cluster; default: start one here.")
    ] = "",
    replicas: Annotated[
        str,
        option("--replicas", panel=REPLICA, help="With --engine ray: MIN:MAX, by the load; default: 1:4."),
    ] = "",
    method: Method = None,
    backbone: BackboneName = None,
    image_size: ImageSize = None,
    precision: PrecisionName = None,
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

    Predict on more machines: `dhocl serve --follow http://WRITER:8000 --token-file token`, or `--follow DIR` on a
    shared disk.

    The page at `/` shows the tree, the one at `/docs` describes all requests.

    Every option can also be set in the file of --config, by its name without dashes in front, as in
    `image-mb = 4`, or in the environment, as in `DHOCL_SERVE_IMAGE_MB=4`. A flag has priority over the environment,
    the environment over the file.
    """
    try:
        from dhocl.service.access import read_token
        from dhocl.service.bodies import Limits
        from dhocl.service.following import source_of
        from dhocl.service.keeper import Pace
        from dhocl.service.logs import configure
        from dhocl.service.replica import Replica
        from dhocl.service.server import start
        from dhocl.service.service import Service
    except ModuleNotFoundError as error:
        raise InputError(f"the service needs {error.name}: pip install 'dhocl[serve]'") from None
    options = {
        "levels": ranks(levels),
        "tree": tree,
        "method": method,
        "backbone": backbone,
        "image_size": image_size,
        "precision": precision,
        "buffer": buffer,
    }
    limits = Limits(
        queue=queue,
        batch=batch,
        image_bytes=image_mb * 2**20,
        pixels=megapixels * 1_000_000,
        classes=max_classes,
        images=keep_images,
        pool=pool,
    )
    given = {name: value for name, value in options.items() if value is not None}
    _check_replica(follow, read_only, writer, given | {"model": model, "source": source})
    _check_engine(engine, follow, address, replicas)
    configure(log_format, access_log)
    learner = (writer or (follow if follow.startswith("http") else "")).rstrip("/") or None
    if engine == "ray":
        from dhocl.service import on_ray

        token = read_token(token_file, host, protect_reading)
        followed = on_ray.Followed(follow, limits, learner, token, protect_reading, device)
        return on_ray.start(followed, on_ray.parse_replicas(replicas or "1:4"), address or None, host, port)

    def opened(token: str | None) -> Service | Replica:
        if follow:
            return Replica(source_of(follow, token), limits, learner, device)
        pace = Pace(entries=checkpoint_every)
        return Service(model or Path("model"), given | {"device": device}, limits, pace, source or [])

    return start(opened, host, port, token_file, protect_reading)


def _check_engine(engine: str, follow: str, address: str, replicas: str) -> None:
    if engine == "ray" and not follow:
        raise InputError("--engine ray is for replicas: give --follow")
    if engine == "local" and (address or replicas):
        raise InputError(f"--{'address' if address else 'replicas'} is for Ray: add --engine ray")


def _check_replica(follow: str, read_only: bool, writer: str, others: dict[str, Any]) -> None:
    if not follow and (read_only or writer):
        raise InputError(f"--{'read-only' if read_only else 'writer'} is for a replica: give --follow")
    unused = [name.replace("_", "-") for name, value in others.items() if value]
    if follow and unused:
        raise InputError(f"a replica has the model of --follow {follow}: leave out --{unused[0]}")
    if writer and not writer.startswith(("http://", "https://")):
        raise InputError(f"--writer {writer}: expected an address such as https://birds.example:8000")
