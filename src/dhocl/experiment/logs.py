"""Log the evaluations of a run to TensorBoard or Weights & Biases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dhocl.core.errors import InputError
from dhocl.experiment.evaluate import Scores
from dhocl.experiment.record import Record
from dhocl.experiment.run import Progress


class Log(ABC):
    @abstractmethod
    def write(self, samples: int, numbers: dict[str, float]) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


def logged(progress: Iterator[Progress], record: Record, kind: str) -> Iterator[Progress]:
    """Pass on the progress and log each evaluation. After a resume, earlier evaluations are logged first."""
    log: Log | None = None
    try:
        for now in progress:
            if log is None:  # the record exists once the run has started
                log = LOGS[kind](record)
                for scores in record.curve()[: -1 if now.scores else None]:
                    log.write(scores["samples"], flattened(scores))
            if now.scores:
                log.write(now.samples, flattened(now.scores))
            yield now
    finally:
        if log is not None:
            log.close()


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


class TensorBoard(Log):
    """Event files in the run's folder, replaced when the run is started or resumed."""

    def __init__(self, record: Record) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError("`log` tensorboard needs a package: pip install 'dhocl[tensorboard]'") from None
        folder = record.folder / "tensorboard"
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer: Any = SummaryWriter(str(folder))

    def write(self, samples: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, samples)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandB(Log):
    """A run of the project `dhocl`. Without an account, WANDB_MODE=offline writes it to the run's folder."""

    def __init__(self, record: Record) -> None:
        try:
            import wandb
        except ImportError:
            raise InputError("`log` wandb needs a package: pip install 'dhocl[wandb]'") from None
        folder: Path = record.folder
        try:
            self._run: Any = wandb.init(
                project="dhocl",
                name=folder.name,
                dir=str(folder),
                config=record.config().to_json(),
                settings=wandb.Settings(console="off", silent=True),
            )
        except wandb.errors.Error as error:
            raise InputError(f"`log` wandb: {error}; set WANDB_MODE=offline to log without an account") from None

    def write(self, samples: int, numbers: dict[str, float]) -> None:
        self._run.log(numbers, step=samples)

    def close(self) -> None:
        self._run.finish()


LOGS: dict[str, Callable[[Record], Log]] = {"tensorboard": TensorBoard, "wandb": WandB}
