"""The files of a run."""

from __future__ import annotations

import dataclasses
import json
import platform
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from dhocl.core.errors import InputError, usable
from dhocl.core.files import write_atomically
from dhocl.core.taxonomy import Taxonomy
from dhocl.data import DATASETS
from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import Scores
from dhocl.methods.registry import method_settings

MARKS = (10, 50)  # numbers of classes of the finest level at which Figures 13 and 14 of the paper show matrices


class Record:
    """The folder of a run.

    | file                   | content                                                                    |
    |------------------------|----------------------------------------------------------------------------|
    | config.json            | configuration, all settings of the method, versions, stream hash           |
    | curve.jsonl            | one line per evaluation; without times, so that equal runs have equal files |
    | taxonomy.jsonl         | the events by which the tree grew                                          |
    | matrices.safetensors   | matrices of the learner at the end, such as prototype distances            |
    | matrices-N.safetensors | the same at the first evaluation with N classes of the finest level        |
    | mistakes.json          | which classes are confused at the end, and examples of mistakes            |
    | summary.json           | metrics of the finished run                                                |
    | checkpoints/           | to resume from                                                             |

    Args:
        folder: the folder, which may not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def exists(self) -> bool:
        return (self.folder / "config.json").exists()

    @property
    def finished(self) -> bool:
        return (self.folder / "summary.json").exists()

    def start(self, config: RunConfig, stream: str, levels: tuple[str, ...], device: str = "cpu") -> None:
        self._write_json(
            "config.json",
            {
                "config": config.to_json(),
                "settings": _settings(config),
                "stream": stream,
                "levels": list(levels),
                "versions": {name: version(name) for name in ("dhocl", "torch", "numpy")}
                | {"python": platform.python_version()},
                "threads": torch.get_num_threads(),
                "device": device,
            },
        )

    def describe(self) -> dict[str, Any]:
        """The content of config.json."""
        return self._read_json("config.json")

    def config(self) -> RunConfig:
        with self._reading("config.json"):
            return RunConfig.from_json(self.describe()["config"])

    def check_defaults(self) -> None:
        """InputError if another version started the run, whose defaults of the method's settings may be others."""
        now, started = _settings(self.config()), self.describe().get("settings")
        other = "move it away, or choose another folder"
        if started is None:
            raise InputError(f"{self.folder} was started by an earlier version, maybe with other defaults: {other}")
        for name, then in started.items():
            if name in now and now[name] != then:
                raise InputError(
                    f"{self.folder} was started with {name.rstrip('_')}={then}, and the default is {now[name]} now: "
                    f"{other}"
                )

    def write_curve(self, curve: list[Scores]) -> None:
        text = "".join(json.dumps(scores) + "\n" for scores in curve)
        write_atomically(self.folder / "curve.jsonl", text.encode())

    def curve(self) -> list[Scores]:
        path = self.folder / "curve.jsonl"
        with self._reading(path.name):
            return [dict(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def write_taxonomy(self, taxonomy: Taxonomy) -> None:
        write_atomically(self.folder / "taxonomy.jsonl", taxonomy.dumps().encode())

    def taxonomy(self) -> Taxonomy:
        with self._reading("taxonomy.jsonl"):
            return Taxonomy.loads((self.folder / "taxonomy.jsonl").read_text(encoding="utf-8"))

    def write_matrices(self, matrices: dict[str, Tensor], mark: int | None = None) -> None:
        """Write matrices of the end of the run, or of the first evaluation with `mark` classes of the finest level."""
        if matrices:
            tensors = {name: matrix.contiguous() for name, matrix in matrices.items()}
            write_atomically(self._matrices(mark), safetensors.torch.save(tensors))

    def write_mistakes(self, mistakes: dict[str, Any]) -> None:
        self._write_json("mistakes.json", mistakes)

    def mistakes(self) -> dict[str, Any]:
        """The content of mistakes.json; empty for an unfinished run, or one of an earlier version."""
        return self._read_json("mistakes.json") if (self.folder / "mistakes.json").exists() else {}

    def finish(self, summary: dict[str, Any], matrices: dict[str, Tensor]) -> None:
        self.write_matrices(matrices)
        self._write_json("summary.json", summary)

    def summary(self) -> dict[str, Any]:
        return self._read_json("summary.json")

    def matrices(self, mark: int | None = None) -> dict[str, Tensor]:
        path = self._matrices(mark)
        with self._reading(path.name):
            return safetensors.torch.load_file(path) if path.exists() else {}

    def _matrices(self, mark: int | None) -> Path:
        return self.folder / ("matrices.safetensors" if mark is None else f"matrices-{mark}.safetensors")

    def _write_json(self, name: str, value: dict[str, Any]) -> None:
        write_atomically(self.folder / name, (json.dumps(value, indent=1) + "\n").encode())

    def _read_json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        if not path.exists():
            raise InputError(f"{self.folder} is not the folder of a run: it has no {name}")
        with self._reading(name):
            return dict(json.loads(path.read_text(encoding="utf-8")))

    def _reading(self, name: str) -> AbstractContextManager[None]:
        return usable(self.folder / name, "start the run again in another folder")


def _settings(config: RunConfig) -> dict[str, Any]:
    """All settings of the method, with their defaults."""
    return dataclasses.asdict(method_settings(config.method, config.settings))


def title(config: RunConfig) -> str:
    """The data set's own name: that of a user's own data is the name of the folder or file.

    >>> title(RunConfig(dataset="cub200")), title(RunConfig(dataset="folder", data="photos/garden birds"))
    ('CUB-200-2011', 'garden birds')
    >>> title(RunConfig(dataset="my.package:moths"))
    'moths'
    """
    if (info := DATASETS.get(config.dataset)) and info.title:
        return info.title
    own = Path(config.data).stem if config.data else ""
    return own or str(config.dataset).rpartition(":")[2]
