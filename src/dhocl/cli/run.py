"""`dhocl run`: one method on one stream."""

from __future__ import annotations

import dataclasses
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dhocl.cli.options import option
from dhocl.errors import InputError


class Logged(StrEnum):
    tensorboard = "tensorboard"
    wandb = "wandb"


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


def run(
    context: typer.Context,
    method: Annotated[str, option("--method", panel=LEARNER, help="See `dhocl list methods`.")] = "halo",
    dataset: Annotated[str, option("--dataset", panel=DATA, help="See `dhocl list datasets`.")] = "glyphs",
    data: Annotated[
        Path | None,
        option("--data", panel=DATA, help="Folder with the published archive or the extracted files."),
    ] = None,
    backbone: Annotated[
        str,
        option("--backbone", panel=LEARNER, help="See `dhocl list backbones`; `hub:NAME` for a model hub's."),
    ] = "efficientnet_lite0",
    image_size: Annotated[
        int | None, option("--image-size", panel=DATA, help="Side in pixels; the data set's own by default.")
    ] = None,
    samples: Annotated[
        int | None, option("--samples", panel=DATA, help="Use a class-balanced part of the training images.")
    ] = None,
    test_samples: Annotated[int | None, option("--test-samples", panel=DATA, help="Likewise for the test.")] = None,
    holdout: Annotated[
        bool,
        option("--holdout", panel=DATA, help="Judge on images held out from training: for choosing settings."),
    ] = False,
    scenario: Annotated[
        Scenario,
        option(
            "--scenario",
            panel=STREAM,
            metavar="NAME",
            help="What arrives when. `dhocl`: each image labelled at a random level. Or a setting of earlier work: "
            "`iblurry`, finest labels, half of the classes in all groups; `hle_single`, superclasses first, then the "
            "classes of other images; `hle_dual`, then those of the same images; `hle_multi`, level after level; "
            "`iirc`, a superclass before its classes. docs/scenarios.md tells more.",
        ),
    ] = Scenario.dhocl,
    groups: Annotated[int, option("--groups", panel=STREAM, help="Groups of classes that come in turn.")] = 10,
    overlap: Annotated[
        float, option("--overlap", panel=STREAM, help="Share of a group's classes that the next one shares.")
    ] = 0.2,
    split_level: Annotated[
        int | None,
        option("--split-level", panel=STREAM, help="Level whose classes are dealt; 0 is the coarsest."),
    ] = None,
    passes: Annotated[int, option("--passes", panel=STREAM, help="Repetitions inside each group.")] = 1,
    buffer: Annotated[int, option("--buffer", panel=LEARNER, help="Images that may be kept for replay.")] = 1000,
    batch: Annotated[int, option("--batch", panel=STREAM, help="Images that arrive at a time.")] = 32,
    replay_batch: Annotated[int, option("--replay-batch", panel=LEARNER, help="Images replayed with them.")] = 16,
    delay: Annotated[
        float,
        option("--delay", panel=KNOWLEDGE, help="Batches until the links of a new class are known; inf: never."),
    ] = 1,
    vacant: Annotated[float, option("--vacant", panel=KNOWLEDGE, help="Share of links that are missing.")] = 0.0,
    noise: Annotated[float, option("--noise", panel=KNOWLEDGE, help="Share of links that are wrong.")] = 0.0,
    eval_every: Annotated[
        int | None,
        option("--eval-every", panel=OUTPUT, help="Samples between evaluations; by default 12 or more a run."),
    ] = None,
    decode: Annotated[
        Decode,
        option("--decode", panel=OUTPUT, help="What to show: each level by itself, or consistent paths."),
    ] = Decode.level,
    seed: Annotated[int, option("--seed", panel=STREAM, help="Decides the stream and everything else.")] = 0,
    set_: Annotated[
        list[str] | None,
        option("--set", panel=LEARNER, help="A setting of the method, `key=value`; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        option("--out", panel=OUTPUT, help="Folder for the run; runs/METHOD-DATASET-SEED by default."),
    ] = None,
    resume: Annotated[
        bool, option("--resume", panel=OUTPUT, help="Go on with the run in --out where it was stopped.")
    ] = False,
    log: Annotated[
        Logged | None, option("--log", panel=OUTPUT, help="Also write the curve for TensorBoard or Weights & Biases.")
    ] = None,
    quiet: Annotated[bool, option("--quiet", panel=OUTPUT, help="No display; errors are still told.")] = False,
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
