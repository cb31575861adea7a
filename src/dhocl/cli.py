"""The command line."""

from __future__ import annotations

import dataclasses
import errno
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dhocl.errors import InputError

app = typer.Typer(
    help="Online continual learning with label hierarchies that grow.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


class Kind(StrEnum):
    methods = "methods"
    datasets = "datasets"
    backbones = "backbones"
    recipes = "recipes"


class Logged(StrEnum):
    tensorboard = "tensorboard"
    wandb = "wandb"


class Engine(StrEnum):
    local = "local"
    ray = "ray"


class Size(StrEnum):  # `recipes.Scale`, which would bring torch along
    smoke = "smoke"
    mini = "mini"
    paper = "paper"


class Decode(StrEnum):
    level = "level"
    path = "path"


class Scenario(StrEnum):
    dhocl = "dhocl"
    iblurry = "iblurry"
    hle_single = "hle_single"
    hle_dual = "hle_dual"
    hle_multi = "hle_multi"
    iirc = "iirc"


DATA = "The data"
STREAM = "The stream"
KNOWLEDGE = "The knowledge source"
LEARNER = "The learner"
OUTPUT = "What comes out"


def _option(*names: str, panel: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@app.command()
def run(
    context: typer.Context,
    method: Annotated[str, _option("--method", panel=LEARNER, help="See `dhocl list methods`.")] = "halo",
    dataset: Annotated[str, _option("--dataset", panel=DATA, help="See `dhocl list datasets`.")] = "glyphs",
    data: Annotated[
        Path | None,
        _option("--data", panel=DATA, help="Folder with the published archive or the extracted files."),
    ] = None,
    backbone: Annotated[
        str,
        _option("--backbone", panel=LEARNER, help="See `dhocl list backbones`; `hub:NAME` for a model hub's."),
    ] = "efficientnet_lite0",
    image_size: Annotated[
        int | None, _option("--image-size", panel=DATA, help="Side in pixels; the data set's own by default.")
    ] = None,
    samples: Annotated[
        int | None, _option("--samples", panel=DATA, help="Use a class-balanced part of the training images.")
    ] = None,
    test_samples: Annotated[int | None, _option("--test-samples", panel=DATA, help="Likewise for the test.")] = None,
    holdout: Annotated[
        bool,
        _option("--holdout", panel=DATA, help="Judge on images held out from training: for choosing settings."),
    ] = False,
    scenario: Annotated[
        Scenario,
        _option(
            "--scenario",
            panel=STREAM,
            metavar="NAME",
            help="What arrives when. `dhocl`: each image labelled at a random level. Or a setting of earlier work: "
            "`iblurry`, finest labels, half of the classes in all groups; `hle_single`, superclasses first, then the "
            "classes of other images; `hle_dual`, then those of the same images; `hle_multi`, level after level; "
            "`iirc`, a superclass before its classes. docs/scenarios.md tells more.",
        ),
    ] = Scenario.dhocl,
    groups: Annotated[int, _option("--groups", panel=STREAM, help="Groups of classes that come in turn.")] = 10,
    overlap: Annotated[
        float, _option("--overlap", panel=STREAM, help="Share of a group's classes that the next one shares.")
    ] = 0.2,
    split_level: Annotated[
        int | None,
        _option("--split-level", panel=STREAM, help="Level whose classes are dealt; 0 is the coarsest."),
    ] = None,
    passes: Annotated[int, _option("--passes", panel=STREAM, help="Repetitions inside each group.")] = 1,
    buffer: Annotated[int, _option("--buffer", panel=LEARNER, help="Images that may be kept for replay.")] = 1000,
    batch: Annotated[int, _option("--batch", panel=STREAM, help="Images that arrive at a time.")] = 32,
    replay_batch: Annotated[int, _option("--replay-batch", panel=LEARNER, help="Images replayed with them.")] = 16,
    delay: Annotated[
        float,
        _option("--delay", panel=KNOWLEDGE, help="Batches until the links of a new class are known; inf: never."),
    ] = 1,
    vacant: Annotated[float, _option("--vacant", panel=KNOWLEDGE, help="Share of links that are missing.")] = 0.0,
    noise: Annotated[float, _option("--noise", panel=KNOWLEDGE, help="Share of links that are wrong.")] = 0.0,
    eval_every: Annotated[
        int | None,
        _option("--eval-every", panel=OUTPUT, help="Samples between evaluations; by default 12 or more a run."),
    ] = None,
    decode: Annotated[
        Decode,
        _option("--decode", panel=OUTPUT, help="What to show: each level by itself, or consistent paths."),
    ] = Decode.level,
    seed: Annotated[int, _option("--seed", panel=STREAM, help="Decides the stream and everything else.")] = 0,
    set_: Annotated[
        list[str] | None,
        _option("--set", panel=LEARNER, help="A setting of the method, `key=value`; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        _option("--out", panel=OUTPUT, help="Folder for the run; runs/METHOD-DATASET-SEED by default."),
    ] = None,
    resume: Annotated[
        bool, _option("--resume", panel=OUTPUT, help="Go on with the run in --out where it was stopped.")
    ] = False,
    log: Annotated[
        Logged | None, _option("--log", panel=OUTPUT, help="Also write the curve for TensorBoard or Weights & Biases.")
    ] = None,
    quiet: Annotated[bool, _option("--quiet", panel=OUTPUT, help="No display; errors are still told.")] = False,
) -> None:
    """Learn a stream once, judge all along, and write what happened.

    The first thing to try is `dhocl run`: HALO on letter shapes that come with the package. With a data set of your
    own: `dhocl run --dataset folder --data DIR`.
    """
    from dhocl.display import watch
    from dhocl.logs import LogKind, logged
    from dhocl.record import Record
    from dhocl.report import write_report
    from dhocl.run import run as start

    out = out or Path("runs") / f"{method}-{dataset}-{seed}"
    if resume:
        config = _resumed(context, Record(out))
    else:
        given = {name: value for name, value in context.params.items() if name not in _NOT_CONFIG}
        config = _config(given, set_ or [])
    try:
        progress = start(config, out, resume)
        watch(logged(progress, Record(out), LogKind(log)) if log else progress, config, out, quiet)
    except KeyboardInterrupt:
        print(
            f"dhocl: stopped; `dhocl run --resume --out {out}` goes on from the last checkpoint",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    page = write_report([out], out / "report.html")
    if not quiet:
        Console().print(f"Open {page} to see it.", soft_wrap=True, markup=False)


_NOT_CONFIG = {"context", "set_", "out", "resume", "quiet", "log"}


def _config(given: dict[str, Any], settings: list[str]) -> Any:
    from dhocl.config import RunConfig, method_settings

    chosen = {}
    for item in settings:
        key, equals, value = item.partition("=")
        if not equals:
            raise InputError(f"--set {item}: write it as key=value")
        chosen[key] = value
    read = dataclasses.asdict(method_settings(given["method"], chosen))
    given |= {name: str(given[name]) for name in ("decode", "scenario")}
    given |= {"data": str(given["data"]) if given["data"] else None}
    return RunConfig(**given, settings={key: read.get(key, read.get(f"{key}_")) for key in chosen})


def _resumed(context: typer.Context, record: Any) -> Any:
    """The stored config; a flag that says otherwise is a mistake."""
    if not record.exists:
        raise InputError(f"nothing to resume: {record.folder} holds no run")
    config = record.config()
    for name in context.params:
        source = context.get_parameter_source(name)
        typed = source is not None and source.name == "COMMANDLINE"
        if typed and name == "set_":
            raise InputError("--resume goes on with the settings the run was started with: leave out --set")
        if typed and name not in _NOT_CONFIG and str(getattr(config, name)) != str(context.params[name]):
            flag = name.replace("_", "-")
            raise InputError(f"--resume: the run was started with --{flag} {getattr(config, name)}; leave it out")
    return config


@app.command()
def sweep(
    recipes: Annotated[list[str], typer.Argument(help="One or more of `dhocl list recipes`, or `all`.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder with the archives or extracted files of the data sets.")
    ] = None,
    scale: Annotated[
        Size,
        typer.Option(help="smoke: minutes, nothing needed; mini: CIFAR-100 and CUB-200 on 2 cores; paper: all of it."),
    ] = Size.smoke,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds 0 to N-1; by default 1 at smoke, 2 at mini, 5 at paper.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="Processes of this machine, or tasks of a Ray cluster.")
    ] = Engine.local,
    workers: Annotated[
        int, typer.Option(min=0, help="Runs at a time; by default one per core, on a cluster as many as fit.")
    ] = 0,
    address: Annotated[
        str | None, typer.Option(help="Of a running Ray cluster; without it one is started here.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for runs and report; runs/SCALE by default.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No display; errors are still told.")] = False,
) -> None:
    """Make the runs of an experiment of the paper, then its tables and figures.

    Stop it at any time and call it again: finished runs are kept, half-done ones go on. Recipes that share a folder
    share runs. `dhocl sweep all` is everything at the smallest scale, in a few minutes.
    """
    from dhocl.display import watch_sweep
    from dhocl.recipes import SEEDS, Scale
    from dhocl.report import write_sweep_report
    from dhocl.sweep import prepare, start

    size = Scale(scale.value)
    folder = out or Path("runs") / size
    jobs = prepare(folder, recipes, size, seeds or SEEDS[size], data)
    try:
        failed = watch_sweep(start(jobs, engine.value, workers, address), jobs, quiet)
    except KeyboardInterrupt:
        print("dhocl: stopped; the same command goes on from here", file=sys.stderr)
        raise typer.Exit(130) from None
    page = write_sweep_report(folder)
    if not quiet:
        Console().print(f"Open {page} to see it.", soft_wrap=True, markup=False)
    if failed:
        print(
            f"dhocl: {len(failed)} of {len(jobs)} runs failed; the first: {failed[0].folder / 'FAILED'}",
            file=sys.stderr,
        )
        raise typer.Exit(1)


@app.command("list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """What can be chosen."""
    from dhocl.backbones import BACKBONES
    from dhocl.data import DATASETS
    from dhocl.methods import METHODS
    from dhocl.recipes import RECIPES

    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    if kind is Kind.methods:
        columns, rows = (
            ("method", "what it does", "from"),
            [(n, m.summary, m.origin) for n, m in METHODS.items()],
        )
    elif kind is Kind.datasets:
        columns, rows = (
            ("data set", "what it is", "levels"),
            [(name, info.summary, " / ".join(info.levels)) for name, info in DATASETS.items()],
        )
    elif kind is Kind.recipes:
        columns, rows = (
            ("recipe", "what it shows", "in the paper"),
            [(name, recipe.title, recipe.where) for name, recipe in RECIPES.items()],
        )
    else:
        columns, rows = ("backbone", "what it is"), [(name, entry.about) for name, entry in BACKBONES.items()]
        rows.append(("hub:NAME", "a model of a hub or a local folder, through transformers: pip install 'dhocl[hub]'"))
    for column in columns:
        table.add_column(column, no_wrap=column == columns[0])
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


@app.command()
def download(
    name: Annotated[str, typer.Argument(help="The data set, as in `dhocl list datasets`.")],
    data: Annotated[Path, typer.Option("--data", help="Folder to put it in.")],
) -> None:
    """Bring a published data set here. If it is stopped, run it again: it goes on where it was."""
    from dhocl.data.download import download as bring
    from dhocl.data.download import find_offer

    offer = find_offer(name)
    console = Console()
    console.print(f"{name}: {offer.terms}.", soft_wrap=True, markup=False)
    for file in bring(name, data):
        console.print(f"{file} is whole.", soft_wrap=True, markup=False)
    if offer.packed:
        console.print(f"Extract it: tar -xzf {data / offer.packed} -C {data}", soft_wrap=True, markup=False)
    console.print(f"Then: dhocl run --dataset {name} --data {data}", soft_wrap=True, markup=False)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, several are compared; or of a sweep.")],
    out: Annotated[
        Path | None, typer.Option(help="The page; report.html in the run's folder, or compare.html here, by default.")
    ] = None,
) -> None:
    """Make the page of a run, compare several on one page, or make the pages and tables of a sweep."""
    from dhocl.report import write_report, write_sweep_report
    from dhocl.sweep import SweepFolder

    if len(runs) == 1 and SweepFolder(runs[0]).recipes:
        Console().print(f"Wrote {write_sweep_report(runs[0])}", soft_wrap=True, markup=False)
        return
    page = out or (runs[0] / "report.html" if len(runs) == 1 else Path("compare.html"))
    Console().print(f"Wrote {write_report(runs, page)}", soft_wrap=True, markup=False)


MODEL = "The model"
ACCESS = "Who may reach it"
LOAD = "How much it takes"


@app.command()
def serve(
    model: Annotated[
        Path, _option("--model", panel=MODEL, help="Folder of the model: journal and checkpoints. Made if missing.")
    ] = Path("model"),
    levels: Annotated[
        str,
        _option("--levels", panel=MODEL, help="Of a new model: its ranks, coarsest first, such as `genus,species`."),
    ] = "",
    tree: Annotated[
        Path | None,
        _option("--tree", panel=MODEL, help="Of a new model: a `tree.tsv` that tells what lies above what."),
    ] = None,
    source: Annotated[
        list[str] | None,
        _option(
            "--source",
            panel=MODEL,
            help="Whom else to ask: `tree:FILE`, `wordnet:DIR`, `darwin_core:PATH` or `llm`; may be repeated.",
        ),
    ] = None,
    method: Annotated[
        str | None, _option("--method", panel=MODEL, help="Of a new model: see `dhocl list methods`; halo by default.")
    ] = None,
    backbone: Annotated[
        str | None,
        _option("--backbone", panel=MODEL, help="Likewise: see `dhocl list backbones`; efficientnet_lite0 by default."),
    ] = None,
    image_size: Annotated[
        int | None, _option("--image-size", panel=MODEL, help="Likewise: side in pixels at which it looks; 96.")
    ] = None,
    buffer: Annotated[
        int | None, _option("--buffer", panel=MODEL, help="Likewise: images that it keeps for replay; 1000.")
    ] = None,
    host: Annotated[
        str, _option("--host", panel=ACCESS, help="Address to listen on; one that others can reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, _option("--port", panel=ACCESS, min=0, max=65535, help="0: any that is free.")] = 8000,
    token_file: Annotated[
        Path | None,
        _option("--token-file", panel=ACCESS, help="File with a secret word that whoever writes must give."),
    ] = None,
    protect_reading: Annotated[
        bool, _option("--protect-reading", panel=ACCESS, help="Whoever reads or predicts must give it too.")
    ] = False,
    queue: Annotated[
        int, _option("--queue", panel=LOAD, min=1, help="Entries that may wait; then posts are answered 429.")
    ] = 1000,
    batch: Annotated[int, _option("--batch", panel=LOAD, min=1, help="Images that a request may hold.")] = 64,
    image_mb: Annotated[int, _option("--image-mb", panel=LOAD, min=1, help="Megabytes that an image may have.")] = 8,
    megapixels: Annotated[
        int, _option("--megapixels", panel=LOAD, min=1, help="Millions of pixels that an image may have.")
    ] = 25,
    checkpoint_every: Annotated[
        int, _option("--checkpoint-every", panel=LOAD, min=1, help="Entries between checkpoints; or each minute.")
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


# What the operating system refuses for want of room or rights.
_USERS_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}


def main() -> None:
    """Errors of the user's are one line and exit code 2; ours are a traceback."""
    try:
        app()
    except InputError as error:
        _fail(str(error))
    except OSError as error:
        if error.errno not in _USERS_ERRORS:
            raise
        what = error.filename or "the output"
        _fail(f"can not write {what}: {error.strerror}; free some room or choose another --out")


def _fail(message: str) -> None:
    print(f"dhocl: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
