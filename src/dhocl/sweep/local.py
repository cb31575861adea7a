"""Runs on this machine: worker processes, each with its share of the threads."""

from __future__ import annotations

import multiprocessing as mp
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from dhocl.sweep.events import Begun, Ended, Event, Underway
from dhocl.sweep.folder import Job
from dhocl.sweep.work import cores, finish


def run_here(jobs: Sequence[Job], workers: int) -> Iterator[Event]:
    """All jobs, `workers` at a time. One that fails, or whose process dies, is told of and the others go on.

    Whoever stops listening stops the work: what is finished is kept, and the rest can go on from its checkpoints.
    """
    waiting = deque(jobs)
    threads = max(1, cores() // workers)
    crew: list[Worker] = []
    try:
        while waiting or crew:
            while waiting and len(crew) < workers:
                crew.append(Worker.hire(threads))
                yield crew[-1].give(waiting.popleft())
            wait([worker.pipe for worker in crew])
            for worker in [worker for worker in crew if worker.pipe.poll()]:
                event = worker.hear()
                yield event
                if isinstance(event, Ended):
                    if waiting and worker.process.is_alive():
                        yield worker.give(waiting.popleft())
                    else:
                        worker.dismiss()
                        crew.remove(worker)
    finally:
        for worker in crew:
            worker.process.terminate()
        for worker in crew:
            worker.process.join()


@dataclass
class Worker:
    """A process that makes one run after the other, so that libraries are loaded once."""

    process: SpawnProcess
    pipe: Connection
    job: Job | None = None

    @classmethod
    def hire(cls, threads: int) -> Worker:
        context = mp.get_context("spawn")  # a forked process would share the parent's thread pools
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, threads))  # no daemon: it may need helpers of its own
        # Read when the libraries are loaded. Threads that wait actively would take the others' time.
        os.environ["OMP_NUM_THREADS"], os.environ["OMP_WAIT_POLICY"] = str(threads), "PASSIVE"
        process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        return cls(process, ours)

    def give(self, job: Job) -> Event:
        self.job = job
        self.pipe.send(job)
        return Begun(job)

    def hear(self) -> Event:
        assert self.job is not None
        try:
            word: Any = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            return Ended(self.job, f"its process died with exit code {self.process.exitcode}")
        return Underway(self.job, *word) if isinstance(word, tuple) else Ended(self.job, word)

    def dismiss(self) -> None:
        self.pipe.close()
        self.process.join()


def _work(pipe: Connection, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)

    def tell(*word: int) -> None:
        try:
            pipe.send(word)
        except OSError:  # nobody is left who would want the rest
            os._exit(1)

    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        pipe.send(finish(job.config, job.folder, tell))
