"""Execute runs in worker processes on this machine."""

from __future__ import annotations

import multiprocessing as mp
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from dhocl.core.process import call, prepare, return_freed_memory
from dhocl.experiment.sweep.events import Begun, Ended, Event, Underway
from dhocl.experiment.sweep.folder import Job
from dhocl.experiment.sweep.work import Place, finish


def run_here(jobs: Sequence[Job], places: Sequence[Place]) -> Iterator[Event]:
    """Execute all jobs, one at a time at each place. If a job fails or its process dies, the others continue.

    Closing the iterator stops the workers. Finished runs are kept, and the others can resume from their checkpoints.
    """
    waiting = deque(jobs)
    free = deque(places)
    pool: list[Worker] = []
    try:
        while waiting or pool:
            while waiting and free:
                pool.append(Worker.start(free.popleft()))
                yield pool[-1].send(waiting.popleft())
            wait([worker.pipe for worker in pool])
            for worker in [worker for worker in pool if worker.pipe.poll()]:
                event = worker.receive()
                yield event
                if isinstance(event, Ended):
                    if waiting and worker.process.is_alive():
                        yield worker.send(waiting.popleft())
                    else:
                        worker.stop()
                        pool.remove(worker)
                        free.append(worker.place)
    finally:
        for worker in pool:
            worker.process.terminate()
        for worker in pool:
            worker.process.join()


@dataclass
class Worker:
    """A process that executes one run after the other, so that libraries are imported once."""

    process: SpawnProcess
    pipe: Connection
    place: Place
    job: Job | None = None

    @classmethod
    def start(cls, place: Place) -> Worker:
        context = mp.get_context("spawn")  # a forked process would share the parent's thread pools
        ours, theirs = context.Pipe()
        # Spinning threads would slow down the other workers.
        environment = {"OMP_NUM_THREADS": str(place.threads), "OMP_WAIT_POLICY": "PASSIVE"}
        arguments = (environment, f"{__name__}:work", theirs, place)
        process = context.Process(target=call, args=arguments)  # not a daemon: it may start processes that decode
        process.start()
        theirs.close()  # so that the pipe closes when the process ends
        return cls(process, ours, place)

    def send(self, job: Job) -> Event:
        self.job = job
        self.pipe.send(job)
        return Begun(job)

    def receive(self) -> Event:
        assert self.job is not None
        try:
            message: Any = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            return Ended(self.job, f"its process died with exit code {self.process.exitcode}")
        return Underway(self.job, *message) if isinstance(message, tuple) else Ended(self.job, message)

    def stop(self) -> None:
        self.pipe.close()
        self.process.join()


def work(pipe: Connection, place: Place) -> None:
    """Entry point of a worker process: execute the jobs that arrive through the pipe."""
    prepare(place.threads)

    def report(*progress: int) -> None:
        try:
            pipe.send(progress)
        except OSError:  # the parent is gone
            os._exit(1)

    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        pipe.send(finish(job.config, job.folder, report, place.device))
        return_freed_memory()
