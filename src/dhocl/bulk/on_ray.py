"""The engine that sums up on a Ray cluster, by Ray Data.

Images are read and summed up by a pool of actors, each with a copy of the model. Sums are added in the cluster, FAN at
a time, so that few reach this process. Ray repeats what a lost node has not finished; sums of a part are the same
wherever they are made, so nothing is counted twice.
"""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dhocl.bulk.learning import EVERY
from dhocl.bulk.work import Part, Row, Task, Worker
from dhocl.core.cluster import connect, shares
from dhocl.core.process import prepare

FAN = 8  # parts that are added at once
LEAST, MOST = 64, 16_384  # images of a part: its sums are 58 MB for each rank, and more with the classes

Table = dict[str, np.ndarray]  # columns of a batch


@contextmanager
def ray_engine(address: str | None, workers: int) -> Iterator[RayEngine]:
    """An engine on the cluster at `address`, or on one started here; at most `workers` actors (0: one per GPU or core).

    Images must have the same path on every node.
    """
    ray = connect(address, workers)
    try:
        with _quiet():
            yield RayEngine(ray, workers)
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


class RayEngine:
    """Sums up on a cluster that is connected, by at most `workers` actors (0: one per core, or per GPU)."""

    def __init__(self, ray: Any, workers: int) -> None:
        resources = ray.cluster_resources()
        self._ray = ray
        self._share = shares(resources)
        self._actors = workers or max(1, int(resources["GPU" if self._share["num_gpus"] else "CPU"]))

    @property
    def every(self) -> int:
        """Images between two times that sums are saved: enough for several parts of each actor."""
        return max(EVERY, 2 * MOST * self._actors)

    def __call__(self, model: dict[str, Any], task: Task, rows: Sequence[Row]) -> Iterator[Part]:
        import ray.data

        size = part_size(len(rows), self._actors)
        chunks = [pickle.dumps(rows[start : start + size]) for start in range(0, len(rows), size)]
        shared = self._ray.put(model)  # it must live as long as actors may be started again
        parts = ray.data.from_items([{"rows": chunk} for chunk in chunks], override_num_blocks=len(chunks)).map_batches(
            RayWorker,
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(self._actors, len(chunks)), max_tasks_in_flight_per_actor=1),
            num_cpus=self._share["num_cpus"],
            num_gpus=self._share["num_gpus"],
            fn_constructor_args=(shared, task),
        )
        # Ray Data would keep a core free for sums, which take little, and start fewer actors.
        for row in parts.map_batches(_joined, batch_size=FAN, num_cpus=0).iter_rows():
            yield pickle.loads(row["part"])


def part_size(images: int, actors: int) -> int:
    """Images of a part: all actors have as many parts, and these are few, since the sums of a part are large.

    >>> part_size(2_000_000, 100), part_size(9000, 2), part_size(1000, 2), part_size(10, 2)
    (10000, 4500, 500, 64)
    """
    rounds = math.ceil(images / (MOST * actors))
    return max(LEAST, math.ceil(images / (rounds * actors)))


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
