"""Image files that are decoded on demand by worker processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cache as once
from io import BytesIO
from itertools import chain, islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import TypeVar

import numpy as np
from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.core.photo import square
from dhocl.core.places import Place
from dhocl.data import cache
from dhocl.data.archive import Archive
from dhocl.data.images import LONG, channels_first, with_progress
from dhocl.data.resized import Resized

T = TypeVar("T")

WORKERS = max(1, min(8, (os.cpu_count() or 1) - 1))


@dataclass(frozen=True)
class Files:
    """Image files that can be indexed like a tensor (N, 3, H, W)."""

    folder: Path
    names: Sequence[str]  # relative to the folder
    size: int  # side of a decoded image
    cut: int = 0  # pixel rows to remove at the bottom of each image
    places: Sequence[str] = ()  # "FILE line N" that lists each image, for error messages; or empty

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """(n,) indices -> (n, 3, size, size) uint8"""
        return channels_first(_decode(self.pick(rows.numpy()), range(len(rows))))

    @property
    def nbytes(self) -> int:
        """Bytes of all images when decoded."""
        return 3 * self.size**2 * len(self)

    def pick(self, rows: np.ndarray) -> Files:
        places = [self.places[row] for row in rows] if self.places else ()
        return replace(self, names=[self.names[row] for row in rows], places=places)

    def decoded(self) -> np.ndarray:
        """All images, (N, size, size, 3) uint8; cached on disk."""
        marks = [(str(self.path(row).absolute()), status.st_size, status.st_mtime_ns) for row, status in self._stats()]
        rows = with_progress(range(len(self)), len(self), "decoding images")
        key = cache.key(f"files-{self.size}px", self.size, self.cut, marks)
        (images,) = cache.arrays(key, ("images",), lambda: [_decode(self, rows)])
        return np.array(images)  # a copy: cached arrays are read-only

    def identity(self) -> Iterator[bytes]:
        """Names and sizes, which identify the files without reading them."""
        for row, status in with_progress(self._stats(), len(self), "checking files"):
            yield f"{self.names[row]} {status.st_size}\n".encode("utf-8", "surrogateescape")

    def path(self, row: int) -> Path:
        return self.folder / self.names[row]

    def what(self, row: int) -> str:
        """The file, for error messages."""
        return f"{self.places[row]}: the image {self.path(row)}" if self.places else str(self.path(row))

    def _stats(self) -> Iterator[tuple[int, os.stat_result]]:
        for row in range(len(self)):
            try:
                yield row, self.path(row).stat()
            except OSError:
                raise InputError(f"{self.what(row)} is missing: extract or download the data set again") from None


OnDemand = Files | Resized
Images = Tensor | OnDemand  # (N, 3, H, W) uint8; [rows] selects


def read_ahead(images: Images, batches: Iterable[Tensor]) -> Iterator[Tensor]:
    """`images[rows]` for the rows of each batch, in order. Files are decoded ahead by worker processes."""
    if isinstance(images, Files):
        parts = (images.pick(rows.numpy()) for rows in batches)
        for pixels in _results((_workers().submit(_decode, part, range(len(part))) for part in parts), WORKERS + 1):
            yield channels_first(pixels)
    else:
        # Not in another thread: OpenMP would start a second team of threads there, and oversubscribed teams sleep.
        yield from (images[rows] for rows in batches)


def read_each(
    items: Iterable[T], path: Callable[[T], Place], size: int, batch: int, *, ahead: bool = True
) -> Iterator[tuple[list[tuple[T, str]], Tensor]]:
    """Batches of images that may be missing or damaged. Many are decoded ahead by worker processes, unless told not to.

    Yields each item with what is wrong with it, or nothing, and the pixels (n, 3, size, size) uint8 of the n good ones.
    """
    begun = iter(items)
    first = list(islice(begun, LONG))
    few = not ahead or len(first) < LONG  # a process takes longer to start
    waiting: deque[list[T]] = deque()

    def jobs() -> Iterator[Future[tuple[np.ndarray, list[str]]]]:
        rest = chain(first, begun)
        while part := list(islice(rest, batch)):
            waiting.append(part)
            paths = [path(item) for item in part]
            yield _done(_attempt(paths, size)) if few else _workers().submit(_attempt, paths, size)

    for pixels, problems in _results(jobs(), 0 if few else WORKERS + 1):
        yield list(zip(waiting.popleft(), problems, strict=True)), channels_first(pixels)


def _done(result: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(result)
    return future


def _attempt(paths: Sequence[Place], size: int) -> tuple[np.ndarray, list[str]]:
    """The images that can be read, (n, size, size, 3), and for each path what is wrong with it, or nothing."""
    images = np.empty((len(paths), size, size, 3), dtype=np.uint8)
    problems: list[str] = []
    for path in paths:
        try:
            images[problems.count("")] = square(path, size, str(path))
            problems.append("")
        except InputError as error:
            problems.append(str(error))
    return images[: problems.count("")], problems


def from_archive(archive: Archive, names: Sequence[str], size: int, what: str, cut: int = 0) -> np.ndarray:
    """(N, size, size, 3) uint8, in the order of `names`, which may differ from that of the archive."""
    place = {name: row for row, name in enumerate(names)}
    images = np.empty((len(names), size, size, 3), dtype=np.uint8)
    for name, content in with_progress(archive.read(names), len(names), what):
        images[place[name]] = square(BytesIO(content), size, f"{name} in {archive.path}", cut)
    return images


def _decode(files: Files, rows: Iterable[int]) -> np.ndarray:
    images = np.empty((len(files), files.size, files.size, 3), dtype=np.uint8)
    for row in rows:
        images[row] = square(files.path(row), files.size, files.what(row), files.cut)
    return images


def _results(jobs: Iterable[Future[T]], ahead: int) -> Iterator[T]:
    """The results of the jobs, in order. Up to `ahead` more jobs are submitted in advance."""
    pending: deque[Future[T]] = deque()
    try:
        for job in jobs:
            pending.append(job)
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise InputError(
            "a process that decodes images was killed: free some memory; in a script, start the work below "
            "`if __name__ == '__main__':`"
        ) from None
    finally:
        for job in pending:
            job.cancel()


@once
def _workers() -> ProcessPoolExecutor:
    """Shared by stream and evaluator, because a process takes seconds to start.

    Spawned, not forked: a fork of a process with threads, such as those of PyTorch, may hang.
    """
    return ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn"), _initialise)


def _initialise() -> None:
    """A worker ignores Ctrl-C, which its parent handles, and exits when its parent exits or is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
