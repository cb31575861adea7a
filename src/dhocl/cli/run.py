"""`dhocl run`: run one method on one stream."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from dhocl.cli.options import OUTPUT, Device, flag, option, with_config
from dhocl.core.errors import InputError
from dhocl.core.outside import short
from dhocl.experiment.config import RunConfig

if TYPE_CHECKING:
    from dhocl.experiment.record import Record


@with_config
def run(
    context: typer.Context,
    *,
    out: Annotated[
        Path | None,
        option("--out", panel=OUTPUT, help="Folder for the results; default: runs/METHOD-DATASET-SEED."),
    ] = None,
    resume: Annotated[
        bool, option("--resume", panel=OUTPUT, help="Continue the run in --out from its last checkpoint.")
    ] = False,
    log: Annotated[
        Literal["tensorboard", "wandb"] | None,
        option("--log", panel=OUTPUT, help="Also log evaluations to TensorBoard or Weights & Biases."),
    ] = None,
    device: Device = "auto",
    quiet: Annotated[bool, option("--quiet", panel=OUTPUT, help="No output except errors.")] = False,
    **config: Any,
) -> None:
    """Train a method on a stream, evaluate it regularly, and write results and a report.

    Without options, AMBER learns from rendered characters, and nothing is downloaded. To train on your own images:
    `dhocl run --dataset folder --data DIR`
    """
    from dhocl.cli.display import watch
    from dhocl.core.process import prepare
    from dhocl.experiment.logs import logged
    from dhocl.experiment.record import Record
    from dhocl.experiment.run import run as start
    from dhocl.report import write_report

    out = out or Path("runs") / f"{short(config['method'])}-{short(config['dataset'])}-{config['seed']}"
    chosen = _resumed(context, Record(out)) if resume else _config(config)
    prepare(Record(out).describe()["threads"] if resume else None)
    try:
        progress = start(chosen, out, resume, device)
        watch(logged(progress, Record(out), log) if log else progress, chosen, out, quiet)
    except KeyboardInterrupt:
        print(
            f"dhocl: stopped; `dhocl run --resume --out {out}` continues from the last checkpoint",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    page = write_report([out], out / "report.html")
    if not quiet:
        for line in (f"Report: {page}", f"Predict: dhocl predict {out} PHOTOS", f"Serve: dhocl serve --model {out}"):
            Console().print(line, soft_wrap=True, markup=False, highlight=False)


def _config(given: dict[str, Any]) -> RunConfig:
    from dhocl.methods.registry import method_settings

    chosen = {}
    for item in given["settings"] or []:
        key, equals, value = item.partition("=")
        if not equals:
            raise InputError(f"--set {item}: write it as key=value")
        chosen[key] = value
    read = dataclasses.asdict(method_settings(given["method"], chosen))
    return RunConfig(**given | {"settings": {key: read.get(key, read.get(f"{key}_")) for key in chosen}})


def _resumed(context: typer.Context, record: Record) -> RunConfig:
    """The stored config. InputError if an option has another value."""
    if not record.exists:
        raise InputError(f"nothing to resume: {record.folder} has no run")
    config = record.config()
    for field in dataclasses.fields(config):
        source, stored = context.get_parameter_source(field.name), getattr(config, field.name)
        if source is None or source.name != "COMMANDLINE":
            continue
        if field.name == "settings":
            raise InputError("--resume uses the settings that the run was started with: leave out --set")
        if str(stored) != str(context.params[field.name]):
            raise InputError(f"--resume: the run was started with {flag(field.name)} {stored}; leave it out")
    return config
