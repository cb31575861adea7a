"""A model's folder, opened: journal, checkpoints, the thread that learns, and the news."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dhocl.classifier import Classifier
from dhocl.errors import InputError
from dhocl.knowledge import Statement, open_source, open_tree
from dhocl.knowledge.source import to_json
from dhocl.service import reports
from dhocl.service.asking import Asker
from dhocl.service.bodies import Limits
from dhocl.service.engine import Engine, Pace
from dhocl.service.journal import Journal
from dhocl.service.live import Live
from dhocl.service.model import Model


class Service:
    """Everything behind the routes. One process at a time may have a folder."""

    def __init__(
        self, folder: Path, options: dict[str, Any], limits: Limits, pace: Pace, sources: Sequence[str] = ()
    ) -> None:
        """`options` are those of a new classifier; a model that is there has its own."""
        if not (folder / "checkpoints").exists() and "levels" not in options:
            raise InputError(f"{folder} holds no model: give --levels, coarsest first, such as family,genus,species")
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder / "lock")
        self.limits = limits
        self.live = Live()
        model, is_new = _opened(folder, options)
        source = open_source(*sources, levels=model.ranks) if sources else None
        if is_new:
            model.save(folder / "checkpoints")
        self.journal = Journal(folder / "journal.sqlite")
        self.ranks = model.ranks
        self.image_size = model.classifier.image_size
        self.engine = Engine(folder / "checkpoints", model, self.journal, self._announce, limits.pixels, pace)
        self._asker = Asker(source, lambda: self.engine.view.taxonomy, self._hear) if source else None

    def start(self) -> None:
        self.live.open()
        self.engine.start()
        if self._asker:
            self._asker.start()

    def stop(self) -> None:
        if self._asker:
            self._asker.stop()
        self.engine.stop()
        self.journal.close()
        self._lock.close()

    def metrics(self) -> dict[str, Any]:
        engine, journal = self.engine, self.journal
        return reports.metrics(engine.view, journal.observations, journal.queued, engine.per_second)

    def _hear(self, answer: list[Statement]) -> None:
        """Through the journal, like everything that changes the model."""
        self.journal.append("revision", [{"kind": "answer", "said": [to_json(said) for said in answer]}])
        self.engine.wake()

    def _announce(self, news: list[tuple[str, Any]]) -> None:
        if self.live.listeners:
            self.live.send((event, self._told(event, value)) for event, value in news)

    def _told(self, event: str, value: Any) -> dict[str, Any]:
        if event == "observation":
            return reports.observation(value)
        if event == "taxonomy":
            return reports.tree_events(self.engine.view, value)
        return {name: value for name, value in self.metrics().items() if name != "history"}


def _opened(folder: Path, options: dict[str, Any]) -> tuple[Model, bool]:
    """The model, and whether it is a new one."""
    model = Model.load(folder / "checkpoints")
    if model is not None:
        _check_same(model.classifier, dict(options), folder)
        return model, False
    if (folder / "journal.sqlite").exists():
        raise InputError(f"{folder} holds a journal, but no whole checkpoint: restore one, or take another folder")
    return Model(Classifier(**options)), True


def _check_same(classifier: Classifier, options: dict[str, Any], folder: Path) -> None:
    """A model stays what it was made as: the same flags may be given again, but no others."""
    file = options.pop("tree", None)
    tree = open_tree(file, classifier.levels) if file else None
    if tree and (classifier.tree is None or tree.dumps() != classifier.tree.dumps()):
        raise InputError(f"the model in {folder} was made without this --tree: give it as --source tree:{file}")
    for name, value in options.items():
        if (own := classifier.options[name]) != value:
            flag = name.replace("_", "-")
            raise InputError(f"the model in {folder} was made with --{flag} {own}, not {value}: leave it out")


def _locked(path: Path) -> Any:
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{path.parent} is in use by another process: stop that one first") from None
    return file
