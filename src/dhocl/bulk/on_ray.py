"""The engine that sums up on a Ray cluster, by Ray Data.

Images are read and summed up by a pool of actors, each with a copy of the model. Sums are added in the cluster, FAN at
a time, so that few reach this process. Ray repeats what a lost node has not finished; sums of a part are the same
wherever they are made, so nothing is counted twice.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dhocl.bulk.learning import Engine
from dhocl.bulk.work import Part, Row, Task, Worker
from dhocl.core.cluster import connect, shares
from dhocl.core.process import prepare

FAN = 8  # parts that are added at once
LEAST, MOST = 64, 4096  # images of a part

Table = dict[str, np.ndarray]  # columns of a batch


@contextmanager
def ray_engine(address: str | None, workers: int) -> Iterator[Engine]:
    """An engine on the cluster at `address`, or on one started here; at most `workers` actors (0: one per GPU or core).

    Images must have the same path on every node.
    """
    ray = connect(address, workers)
    try:
        with _quiet():
            yield lambda model, task, rows: _sum_up(ray, model, task, rows, workers)
    finally:
        ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars and messages of Ray Data."""
    import ray.data

    context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    before = context.enable_progress_bars, logger.level
    context.enable_progress_bars = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.enable_progress_bars = before[0]
        logger.setLevel(before[1])


def _sum_up(ray: Any, model: dict[str, Any], task: Task, rows: Sequence[Row], workers: int) -> Iterator[Part]:
    import ray.data

    resources = ray.cluster_resources()
    share = shares(resources)
    most = workers or max(1, int(resources["GPU" if share["num_gpus"] else "CPU"]))
    size = min(MOST, max(LEAST, len(rows) // (4 * most)))
    chunks = [pickle.dumps(rows[start : start + size]) for start in range(0, len(rows), size)]
    shared = ray.put(model)  # it must live as long as actors may be started again
    parts = ray.data.from_items([{"rows": chunk} for chunk in chunks], override_num_blocks=len(chunks)).map_batches(
        RayWorker,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(most, len(chunks))),
        **share,
        fn_constructor_args=(shared, task),
    )
    for row in parts.map_batches(_joined, batch_size=FAN).iter_rows():
        yield pickle.loads(row["part"])


class RayWorker:
    """A worker in a process of Ray."""

    def __init__(self, model: Any, task: Task) -> None:
        import ray

        prepare(threads=1)
        self._worker = Worker(ray.get(model), task, ahead=False)

    def __call__(self, batch: Table) -> Table:
        return _table([self._worker(pickle.loads(rows)) for rows in batch["rows"]])


def _joined(batch: Table) -> Table:
    """One part of several."""
    first, *others = [pickle.loads(part) for part in batch["part"]]
    for part in others:
        first.sums.join(part.sums)
        first.problems.extend(part.problems)
        first.learned.extend(part.learned)
    rows = first.rows + sum(part.rows for part in others)
    return _table([first._replace(rows=rows)])


def _table(parts: Sequence[Part]) -> Table:
    column = np.empty(len(parts), dtype=object)
    column[:] = [pickle.dumps(part) for part in parts]
    return {"part": column}
