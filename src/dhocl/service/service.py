"""A service: the folder of a model with journal, checkpoints, engine and live events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dhocl.classifier import Classifier
from dhocl.core.errors import InputError
from dhocl.core.files import locked, make_private
from dhocl.knowledge import Statement, open_source, open_tree
from dhocl.knowledge.source import to_json
from dhocl.model import Model
from dhocl.service import reports, schema
from dhocl.service.asking import AskingThread, within
from dhocl.service.bodies import Limits
from dhocl.service.engine import Engine
from dhocl.service.journal import Journal, Post
from dhocl.service.keeper import Keeper, Pace
from dhocl.service.live import Live
from dhocl.service.measures import Measures
from dhocl.service.pool import Pool
from dhocl.service.served import ServedModel, Snapshot


class Service:
    """The state behind the routes. It locks its folder against other processes."""

    learns = True
    metrics_model, health_model = schema.LearningMetrics, schema.Health

    def __init__(
        self, folder: Path, options: dict[str, Any], limits: Limits, pace: Pace, sources: Sequence[str] = ()
    ) -> None:
        """`options`: of a new classifier. An existing model keeps its own."""
        if not (folder / "checkpoints").exists() and "levels" not in options:
            raise InputError(f"{folder} has no model: give --levels, coarsest first, such as family,genus,species")
        if (folder / "config.json").exists() and not (folder / "summary.json").exists():
            raise InputError(f"the run in {folder} is not finished: `dhocl run --resume --out {folder}` finishes it")
        self._lock = ExitStack()
        self._lock.enter_context(locked(folder))
        make_private(folder)
        self.folder = folder
        self.limits = limits
        self.live = Live()
        self.measures = Measures(self.metrics)
        path = folder / "journal.sqlite"
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a journal: move it away")
        journal = (
            Journal(path, limits.images) if path.exists() else None
        )  # its lock comes before all else that may be written
        served = _opened(folder, options, journal)
        source = open_source(*sources, levels=served.ranks) if sources else None
        self.journal = journal or Journal(path, limits.images)
        self.ranks = served.ranks
        self.method = str(served.model.config.to_json()["method"])
        self.image_size = served.model.config.image_size
        self.pool = Pool(self.journal, limits.pool)
        keeper = Keeper(folder / "checkpoints", self.journal, pace, served)
        self.engine = Engine(served, self.journal, keeper, self._announce, self.measures.batches.time)
        self._asking = AskingThread(source, lambda: self.engine.snapshot.taxonomy, self._answered) if source else None

    def start(self) -> None:
        self.live.open()
        self.engine.start()
        if self._asking:
            self._asking.start()

    def stop(self) -> None:
        if self._asking:
            self._asking.stop()
        self.engine.stop()
        self.journal.close()
        self._lock.close()

    @property
    def snapshot(self) -> Snapshot:
        return self.engine.snapshot

    def metrics(self) -> dict[str, Any]:
        return reports.metrics(self.snapshot) | {
            "accepted": self.journal.observations,
            "queued": self.journal.queued,
            "per_second": round(self.engine.per_second, 2),
            "waiting": round(self.engine.waiting, 3),
            "pool": len(self.pool),
        }

    def health(self) -> dict[str, Any]:
        status = "failed" if not self.engine.alive else "waiting" if self.engine.waiting else "ok"
        return {"status": status, "queued": self.journal.queued, "learned": self.snapshot.learned}

    def about(self) -> dict[str, Any]:
        learned, queued = self.snapshot.learned, self.journal.queued
        return {"model": str(self.folder), "method": self.method, "learned": learned, "queued": queued}

    def _answered(self, answer: list[Statement]) -> None:
        """Append an answer of a source to the journal, like everything that changes the model."""
        said = [to_json(statement) for statement in within(answer, self.snapshot.taxonomy, self.limits.classes)]
        if said:
            self.journal.append([Post("revision", [{"kind": "answer", "said": said}])])
            self.engine.wake()

    def _announce(self, news: list[tuple[str, Any]]) -> None:
        if self.live.listeners:
            self.live.send((event, self._content(event, value)) for event, value in news)

    def _content(self, event: str, value: Any) -> dict[str, Any]:
        if event == "observation":
            return reports.observation(value)
        if event == "correction":
            return reports.correction(value)
        if event == "taxonomy":
            return reports.tree_events(self.engine.snapshot, value)
        return {name: value for name, value in self.metrics().items() if name != "history"}


def _opened(folder: Path, options: dict[str, Any], journal: Journal | None) -> ServedModel:
    """The model of a folder, or a new one, with a first checkpoint."""
    served = ServedModel.load(folder / "checkpoints", options.get("device", "auto"))
    if served is not None:
        _check_same(served.model, {name: value for name, value in options.items() if name != "device"}, folder)
        return served
    if journal and journal.last:
        raise InputError(f"{folder} has a journal, but no intact checkpoint: restore one, or use another folder")
    served = ServedModel(Classifier(**options).model)
    served.save(folder / "checkpoints")
    return served


def _check_same(model: Model, options: dict[str, Any], folder: Path) -> None:
    """InputError if an option differs from what the model was created with."""
    file = options.pop("tree", None)
    tree = open_tree(file, model.config.levels) if file else None
    if tree and (model.tree is None or tree.dumps() != model.tree.dumps()):
        raise InputError(f"the model in {folder} was created without this --tree: give it as --source tree:{file}")
    made_of = model.config.to_json()
    for name, value in options.items():
        if (own := made_of[name]) != value:
            shown = ",".join(own) if isinstance(own, list) else own
            flag = name.replace("_", "-")
            raise InputError(f"the model in {folder} was created with --{flag} {shown}: leave the option out")
