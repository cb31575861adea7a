"""Learn photographs with labels in bulk: sum up labels, solve, then sum up guesses of what is below coarse labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from dhocl.bulk.job import TASKS, Job
from dhocl.bulk.work import CHUNK, Part, Row, Task, Worker, bulk_learner
from dhocl.classifier.learning import Progress, opened, unlearned
from dhocl.core import checkpoint
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.amber import Amber

EVERY = 20_000  # images between two times that the sums are saved

Engine = Callable[[dict[str, Any], Task, Sequence[Row]], Iterator[Part]]  # state of the model, task, rows


def locally(model: dict[str, Any], task: Task, rows: Sequence[Row], device: str = "auto") -> Iterator[Part]:
    """The engine that uses this machine: a GPU, or all cores."""
    worker = Worker(model, task, device=device)
    for start in range(0, len(rows), CHUNK):
        yield worker(rows[start : start + CHUNK])


def learn_in_bulk(
    folder: Path, data: Path, options: dict[str, Any], engine: Engine = locally, every: int = EVERY
) -> Iterator[Progress]:
    """Learn the photographs of `data` as `learn_album` does, but all at once. Their order has no effect.

    A call that was interrupted goes on with the sums that were saved.

    Args:
        folder: of the model. It is created if there is none.
        data: see `dhocl.data.album`.
        options: of a new `Classifier`. An existing model keeps its own.
        engine: where to sum up.
        every: images between two times that the sums are saved.

    Yields:
        Progress, first before the first image. Images with coarse labels count twice: they are looked at twice.
    """
    with opened(folder, data, options) as (classifier, album):
        model = classifier.model
        learner = bulk_learner(model)
        fresh, before = unlearned(classifier, (photo for photo in album.photos if not photo.test))
        model.curator.observe(list(dict.fromkeys(photo.label for photo in fresh.values())))
        tree = model.taxonomy
        rows = [Row(photo.path, tree.id(photo.label), mark) for mark, photo in fresh.items()]
        job = Job(folder / "bulk", learner, rows)
        total = len(rows) + len(_completed(rows, learner, tree))

        def progress(problems: list[str]) -> Progress:
            done = sum(job.done.values())
            return Progress(done + ahead, total, len(job.learned), before, done, problems, classifier)

        ahead = 0  # rows of this round
        yield progress([])
        if not rows:
            return
        for task in TASKS:
            todo = rows
            if task == "guesses":
                learned = set(job.learned.tolist())
                if not learned:
                    job.remove()
                    return
                todo = _completed([row for row in rows if row.mark in learned], learner, tree)
                total = len(rows) + len(todo)
                learner.adopt(job.sums["labels"], tree)
            while some := todo[job.done[task] :][:every]:
                for part in engine(model.state_dict(), task, some):
                    job.add(task, part)
                    ahead += part.rows
                    yield progress(part.problems)
                job.save(task, len(some))
                ahead = 0
        if job.done["guesses"]:
            learner.adopt(job.sums["guesses"], tree)
        classifier.learned = torch.cat([classifier.learned, job.learned])
        checkpoint.save(folder / "checkpoints", classifier.state_dict())
        job.remove()
        yield progress([])


def _completed(rows: Sequence[Row], learner: Amber, tree: Taxonomy) -> list[Row]:
    """Those whose labels are completed: they are not leaves of the tree."""
    if learner.settings.completion == "never":
        return []
    is_leaf = TreeTable.of(tree).is_leaf.tolist()
    return [row for row in rows if not is_leaf[row.node]]
