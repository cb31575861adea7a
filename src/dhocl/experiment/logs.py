"""Log the evaluations of a run to TensorBoard or Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any

from dhocl.core.errors import InputError
from dhocl.experiment.evaluate import Scores
from dhocl.experiment.record import Record
from dhocl.experiment.run import Progress

Write = Callable[[int, dict[str, float]], None]  # samples, numbers by name


def logged(progress: Iterator[Progress], record: Record, kind: str) -> Iterator[Progress]:
    """Pass on the progress and log each evaluation. After a resume, earlier evaluations are logged first."""
    write: Write | None = None
    with ExitStack() as stack:
        for now in progress:
            if write is None:  # the record exists once the run has started
                write = stack.enter_context(LOGS[kind](record))
                for scores in record.curve()[: -1 if now.scores else None]:
                    write(scores["samples"], flattened(scores))
            if now.scores:
                write(now.samples, flattened(now.scores))
            yield now


def flattened(scores: Scores) -> dict[str, float]:
    """
    >>> flattened({"step": 4, "samples": 128, "ms": 1.5, "level_accuracy": {"0": 50.0}, "fine_accuracy": None})
    {'ms': 1.5, 'level_accuracy/0': 50.0}
    """
    flat: dict[str, float] = {}
    for name, value in scores.items():
        if isinstance(value, dict):
            flat |= {f"{name}/{inner}": number for inner, number in flattened(value).items()}
        elif value is not None and name not in ("step", "samples"):
            flat[name] = value
    return flat


@contextmanager
def tensorboard(record: Record) -> Iterator[Write]:
    """Event files in the run's folder, replaced when the run is started or resumed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("`log` tensorboard needs a package: pip install 'dhocl[tensorboard]'") from None
    folder = record.folder / "tensorboard"
    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    writer: Any = SummaryWriter(str(folder))

    def write(samples: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, samples)
        writer.flush()

    with closing(writer):
        yield write


@contextmanager
def wandb(record: Record) -> Iterator[Write]:
    """A run of the project `dhocl`. Without an account, WANDB_MODE=offline writes it to the run's folder."""
    try:
        import wandb as service
    except ImportError:
        raise InputError("`log` wandb needs a package: pip install 'dhocl[wandb]'") from None
    try:
        run: Any = service.init(
            project="dhocl",
            name=record.folder.name,
            dir=str(record.folder),
            config=record.config().to_json(),
            settings=service.Settings(console="off", silent=True),
        )
    except service.errors.Error as error:
        raise InputError(f"`log` wandb: {error}; set WANDB_MODE=offline to log without an account") from None
    try:
        yield lambda samples, numbers: run.log(numbers, step=samples)
    finally:
        run.finish()


LOGS: dict[str, Callable[[Record], AbstractContextManager[Write]]] = {"tensorboard": tensorboard, "wandb": wandb}
