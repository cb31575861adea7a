"""Download published data sets from their authors, where the terms allow it.

A file is written to NAME.part, and renamed once it is complete and matches the published checksum. An interrupted
download resumes.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from dhocl.core.errors import InputError
from dhocl.data import aircraft, cifar100, cub200, imagenet_h

TIMEOUT = 10.0  # seconds without data
BYTES_AT_ONCE = 2**20  # bytes read at once


class File(NamedTuple):
    url: str
    md5: str | None  # as published; None if there is none

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


class Offer(NamedTuple):
    files: tuple[File, ...]
    terms: str
    packed: str = ""  # an archive that must be extracted before use


def _inaturalist(year: int, images: str, train: str, val: str) -> Offer:
    base = f"https://ml-inat-competition-datasets.s3.amazonaws.com/{year}"
    parts = (
        File(f"{base}/categories.json.tar.gz", None),
        File(f"{base}/train{year}.json.tar.gz", train),
        File(f"{base}/val{year}.json.tar.gz", val),
        File(f"{base}/train_val{year}.tar.gz", images),
    )
    terms = "non-commercial research and education, no redistribution; https://www.inaturalist.org/pages/terms"
    return Offer(parts, terms, f"train_val{year}.tar.gz")


CUB = Offer(
    (File(f"{cub200.ORIGIN}/files/CUB_200_2011.tgz", "97eceeb196236b17998738112f37df78"),),
    "non-commercial research and education",
)
OFFERS = {
    "cifar100": Offer(
        (File(cifar100.ORIGIN, "eb9058c3a382ffc7106e4002c42a8d85"),),
        "no licence stated; the author asks for a citation (Krizhevsky 2009)",
    ),
    "cub200": CUB,
    "cub200_genus": CUB,
    "aircraft": Offer(
        (File(aircraft.ORIGIN, "d4acdd33327262359767eeaa97a4f732"),),
        "non-commercial research",
    ),
    "inaturalist2018": _inaturalist(
        2018,
        "b1c6952ce38f31868cc50ea72d066cc3",
        "bfa29d89d629cbf04d826a720c0a68b0",
        "f2ed8bfe3e9901cdefceb4e53cd3775d",
    ),
    "inaturalist2019": _inaturalist(
        2019,
        "c60a6e2962c9b8ccbd458d12c8582644",
        "b06a6683537867c0d5c7a45f407a306d",
        "5cc5509b0fe495f1c8c1362612448497",
    ),
}


def find_offer(name: str) -> Offer:
    if name.startswith("imagenet"):
        raise InputError(
            f"{name} can not be downloaded: request access to ImageNet at {imagenet_h.ORIGIN}, and get WordNet from "
            f"{imagenet_h.WORDNET}"
        )
    if name not in OFFERS:
        raise InputError(f"{name!r} can not be downloaded: choose one of {', '.join(OFFERS)}")
    return OFFERS[name]


def download(name: str, folder: Path) -> list[Path]:
    """Download the files of a data set to a folder. Of existing files only the checksums are verified."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"`data` {folder} is a file: name a folder")
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(True), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
        return [fetch(part, folder, progress) for part in find_offer(name).files]


def fetch(part: File, folder: Path, progress: Progress) -> Path:
    """Download one file, if it is missing, and verify its checksum."""
    target, partial = folder / part.name, folder / f"{part.name}.part"
    there = target.exists()
    if not there:
        _transfer(part, partial, progress)
    if part.md5 is not None and (found := _md5(target if there else partial, progress)) != part.md5:
        partial.unlink(missing_ok=True)
        remedy = f"delete {target}" if there else "it was deleted"
        raise InputError(
            f"{part.name} from {part.url} is not the published file (expected md5 {part.md5}, found {found}): "
            f"{remedy}, run the command again"
        )
    return target if there else partial.rename(target)


def _transfer(part: File, partial: Path, progress: Progress) -> None:
    """Download the missing part. It includes the last byte that is there, because an empty range is an error."""
    start = max(0, partial.stat().st_size - 1) if partial.exists() else 0
    with _request(part, partial, start) as response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:  # this server does not support ranges
            start = 0
        size = None if response.length is None else start + response.length
        free = shutil.disk_usage(next(parent for parent in partial.absolute().parents if parent.exists())).free
        if size is not None and size - start > free:
            needed = f"{(size - start) / 1e9:.1f} GB"
            raise InputError(f"{part.name} needs {needed}, but {partial.parent} has {free / 1e9:.1f} GB free")
        partial.parent.mkdir(parents=True, exist_ok=True)
        task = progress.add_task(part.name, total=size, completed=start)
        with partial.open("r+b" if start else "wb") as file:
            file.seek(start)
            for chunk in _chunks(response, part):
                file.write(chunk)
                progress.advance(task, len(chunk))
    if size is not None and partial.stat().st_size < size:
        raise _broken(part)


def _request(part: File, partial: Path, start: int) -> HTTPResponse:
    headers = {"User-Agent": "dhocl"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response: HTTPResponse = urlopen(Request(part.url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise InputError(f"{partial} is longer than {part.url}: delete it and run the command again") from None
        raise InputError(f"{part.url} returned {error.code} {error.reason}: try again later") from None
    except (OSError, HTTPException) as problem:
        reason = problem.reason if isinstance(problem, URLError) else problem
        raise InputError(
            f"can not reach {urlsplit(part.url).netloc} ({reason}): check the network, or copy {part.url} to "
            f"{partial.parent} yourself"
        ) from None
    return response


def _chunks(response: HTTPResponse, part: File) -> Iterator[bytes]:
    try:
        while chunk := response.read(BYTES_AT_ONCE):
            yield chunk
    except (OSError, HTTPException):
        raise _broken(part) from None


def _broken(part: File) -> InputError:
    return InputError(f"the connection broke while {part.name} was downloaded: run the command again to resume")


def _md5(file: Path, progress: Progress) -> str:
    task = progress.add_task(f"checking {file.name}", total=file.stat().st_size)
    digest = hashlib.md5(usedforsecurity=False)
    with file.open("rb") as content:
        while chunk := content.read(BYTES_AT_ONCE):
            digest.update(chunk)
            progress.advance(task, len(chunk))
    return digest.hexdigest()
