"""A replica: it predicts with the newest checkpoint of a model that another process writes."""

from __future__ import annotations

import logging
import time
from threading import Event, Thread
from typing import Any, NamedTuple

from dhocl.core.errors import InputError, lacks_memory
from dhocl.service import reports, schema
from dhocl.service.bodies import Limits
from dhocl.service.following import Checkpoint, Look, Source, UnavailableError
from dhocl.service.live import Live
from dhocl.service.logs import Line
from dhocl.service.measures import Measures
from dhocl.service.served import ServedModel, Snapshot

logger = logging.getLogger(__name__)

EVERY = 2.0  # seconds between looks
LONGEST = 30.0  # seconds between looks that fail


class Current(NamedTuple):
    """What predicts. All of it is replaced at once."""

    checkpoint: str
    snapshot: Snapshot
    made: float
    image_size: int
    method: str


class Replica:
    """The state behind the routes of a replica. It writes nothing.

    Args:
        source: of the checkpoints. If it can not be reached yet, the constructor waits.
        limits: of requests.
        writer: address that refused writes name; None if it is not known.
        device: where it computes.
    """

    learns = False
    metrics_model, health_model = schema.ReplicaMetrics, schema.ReplicaHealth

    def __init__(self, source: Source, limits: Limits, writer: str | None, device: str = "auto") -> None:
        self.limits = limits
        self.writer = writer
        self.live = Live()
        self.measures = Measures(self.metrics)
        self._source = source
        self._device = device
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="follower")
        self._problem: str | None = None
        self._newest: int | None = None  # entry of the writer
        self._checked = time.monotonic()  # time of the last look that succeeded
        first = self._first()
        self._seen = first.name  # the last one that was found, also if it can not be used
        self._current = _loaded(first, source.address, device)
        self.ranks = self._current.snapshot.ranks
        self.image_size = self._current.image_size

    def start(self) -> None:
        self.live.open()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def snapshot(self) -> Snapshot:
        return self._current.snapshot

    def metrics(self) -> dict[str, Any]:
        current, freshness = self._current, self.freshness()
        about = {
            "follows": self._source.address,
            "writer": self.writer,
            "checkpoint": current.checkpoint,
            "problem": self._problem,
        }
        return reports.metrics(current.snapshot) | {"replica": freshness | about}

    def health(self) -> dict[str, Any]:
        """It predicts in any case, so it is never `failed`."""
        status = "ok" if self._problem is None else "stale"
        return {"status": status, "learned": self.snapshot.learned} | self.freshness()

    def about(self) -> dict[str, Any]:
        current = self._current
        learned = current.snapshot.learned
        return {
            "follows": self._source.address,
            "method": current.method,
            "learned": learned,
            "checkpoint": current.checkpoint,
        }

    def freshness(self) -> dict[str, Any]:
        """How old the checkpoint is that predicts."""
        current = self._current
        behind = None if self._problem or self._newest is None else max(0, self._newest - current.snapshot.applied)
        return {
            "staleness": round(max(0.0, time.time() - current.made), 3),
            "behind": behind,
            "checked": round(time.monotonic() - self._checked, 3),
        }

    def turn(self) -> bool:
        """Look once for a newer checkpoint, and use it. Whether that succeeded."""
        try:
            look = self._source.look(self._seen)
            self._saw(look)
            if look.found:
                self._seen = look.found.name
                self._use(_loaded(look.found, self._source.address, self._device))
        except (UnavailableError, InputError, OSError) as error:
            self._report(str(error))
        except Exception as error:
            if not lacks_memory(error):
                raise
            self._seen = self._current.checkpoint
            self._report("there is no memory for the newest checkpoint")
        else:
            usable = self._seen == self._current.checkpoint
            self._report(None if usable else f"checkpoint {self._seen} can not be used")
        return self._problem is None

    def _first(self) -> Checkpoint:
        pause = EVERY
        while True:
            try:
                look = self._source.look("")
                self._saw(look)
                assert look.found is not None
                return look.found
            except (UnavailableError, OSError) as error:
                logger.warning("%s; waiting for the first checkpoint", error)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)

    def _saw(self, look: Look) -> None:
        self._newest, self._checked = look.newest, time.monotonic()

    def _run(self) -> None:
        pause = EVERY
        while not self._stopping.wait(pause):
            try:
                pause = EVERY if self.turn() else min(2 * pause, LONGEST)
            except Exception:
                logger.exception("the newest checkpoint can not be used")
                self._problem, pause = "the newest checkpoint can not be used: see the log", LONGEST

    def _use(self, new: Current) -> None:
        if (new.snapshot.ranks, new.image_size) != (self.ranks, self.image_size):
            raise InputError(f"{self._source.address} has another model by now: start this replica anew")
        before, self._current = self._current, new
        version = before.snapshot.taxonomy.version
        logger.info(Line("checkpoint followed", checkpoint=new.checkpoint, learned=new.snapshot.learned))
        if self.live.listeners:
            news = [("metrics", {name: value for name, value in self.metrics().items() if name != "history"})]
            if new.snapshot.taxonomy.version > version:
                news.insert(0, ("taxonomy", reports.tree_events(new.snapshot, version)))
            self.live.send(news)

    def _report(self, problem: str | None) -> None:
        if problem and problem != self._problem:
            logger.warning("%s; predictions are those of checkpoint %s", problem, self._current.checkpoint)
        elif self._problem and not problem:
            logger.info(Line("following again", checkpoint=self._current.checkpoint))
        self._problem = problem


def _loaded(found: Checkpoint, address: str, device: str) -> Current:
    served = ServedModel.from_state(found.state, address, device)
    config = served.model.config
    return Current(found.name, Snapshot(served), found.made, config.image_size, config.method)
