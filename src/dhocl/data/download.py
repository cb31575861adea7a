"""Published data sets, brought here from where their authors put them, if their terms allow it.

What has arrived lies in NAME.part until it is whole and has the published sum, so a download that was stopped goes on
where it stopped.
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

from dhocl.data import aircraft, cifar100, cub200, imagenet_h
from dhocl.errors import InputError

TIMEOUT = 10.0  # seconds without an answer
CHUNK = 2**20  # bytes read at once


class Part(NamedTuple):
    url: str
    md5: str | None  # as published; None: there is none

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


class Offer(NamedTuple):
    parts: tuple[Part, ...]
    terms: str
    packed: str = ""  # the archive that has to be extracted before use


def _inaturalist(year: int, images: str, train: str, val: str) -> Offer:
    base = f"https://ml-inat-competition-datasets.s3.amazonaws.com/{year}"
    parts = (
        Part(f"{base}/categories.json.tar.gz", None),
        Part(f"{base}/train{year}.json.tar.gz", train),
        Part(f"{base}/val{year}.json.tar.gz", val),
        Part(f"{base}/train_val{year}.tar.gz", images),
    )
    terms = "for non-commercial research and education, not to be passed on; https://www.inaturalist.org/pages/terms"
    return Offer(parts, terms, f"train_val{year}.tar.gz")


CUB = Offer(
    (Part(f"{cub200.ORIGIN}/files/CUB_200_2011.tgz", "97eceeb196236b17998738112f37df78"),),
    "for non-commercial research and education",
)
OFFERS = {
    "cifar100": Offer(
        (Part(cifar100.ORIGIN, "eb9058c3a382ffc7106e4002c42a8d85"),),
        "no licence is stated; its authors ask to be cited (Krizhevsky 2009)",
    ),
    "cub200": CUB,
    "cub200_genus": CUB,
    "aircraft": Offer(
        (Part(aircraft.ORIGIN, "d4acdd33327262359767eeaa97a4f732"),),
        "for non-commercial research",
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
            f"ImageNet is given to those who sign its terms: ask at {imagenet_h.ORIGIN}, and get WordNet from "
            f"{imagenet_h.WORDNET}"
        )
    if name not in OFFERS:
        raise InputError(f"{name!r} can not be downloaded: choose one of {', '.join(OFFERS)}")
    return OFFERS[name]


def download(name: str, folder: Path) -> list[Path]:
    """The files of a data set, in a folder; of those that are there already only the sums are checked."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--data {folder} is a file: name a folder")
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(True), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
        return [fetch(part, folder, progress) for part in find_offer(name).parts]


def fetch(part: Part, folder: Path, progress: Progress) -> Path:
    """One file, whole and with the published sum."""
    target, aside = folder / part.name, folder / f"{part.name}.part"
    there = target.exists()
    if not there:
        _transfer(part, aside, progress)
    if part.md5 is not None and (found := _md5(target if there else aside, progress)) != part.md5:
        aside.unlink(missing_ok=True)
        remedy = f"delete {target}" if there else "it was deleted"
        raise InputError(
            f"{part.name} from {part.url} is not the published file (expected md5 {part.md5}, found {found}): "
            f"{remedy}, run the command again"
        )
    return target if there else aside.rename(target)


def _transfer(part: Part, aside: Path, progress: Progress) -> None:
    """Bring what is missing. The last byte that is there is asked for again, so that there is always one to get."""
    start = max(0, aside.stat().st_size - 1) if aside.exists() else 0
    with _ask(part, aside, start) as answer:
        if answer.status != HTTPStatus.PARTIAL_CONTENT:  # this server only gives the whole
            start = 0
        size = None if answer.length is None else start + answer.length
        free = shutil.disk_usage(next(parent for parent in aside.absolute().parents if parent.exists())).free
        if size is not None and size - start > free:
            needed = f"{(size - start) / 1e9:.1f} GB"
            raise InputError(f"{part.name} needs {needed}, but {aside.parent} has room for {free / 1e9:.1f} GB")
        aside.parent.mkdir(parents=True, exist_ok=True)
        task = progress.add_task(part.name, total=size, completed=start)
        with aside.open("r+b" if start else "wb") as file:
            file.seek(start)
            for chunk in _chunks(answer, part):
                file.write(chunk)
                progress.advance(task, len(chunk))
    if size is not None and aside.stat().st_size < size:
        raise _broken(part)


def _ask(part: Part, aside: Path, start: int) -> HTTPResponse:
    headers = {"User-Agent": "dhocl"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        answer: HTTPResponse = urlopen(Request(part.url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise InputError(f"{aside} is longer than {part.url}: delete it and run the command again") from None
        raise InputError(f"{part.url} answers {error.code} {error.reason}: try again later") from None
    except (OSError, HTTPException) as problem:
        reason = problem.reason if isinstance(problem, URLError) else problem
        raise InputError(
            f"can not reach {urlsplit(part.url).netloc} ({reason}): check the network, or bring {part.url} to "
            f"{aside.parent} in another way"
        ) from None
    return answer


def _chunks(answer: HTTPResponse, part: Part) -> Iterator[bytes]:
    try:
        while chunk := answer.read(CHUNK):
            yield chunk
    except (OSError, HTTPException):
        raise _broken(part) from None


def _broken(part: Part) -> InputError:
    return InputError(f"the connection broke while {part.name} was coming: run the command again to go on")


def _md5(file: Path, progress: Progress) -> str:
    task = progress.add_task(f"checking {file.name}", total=file.stat().st_size)
    digest = hashlib.md5(usedforsecurity=False)
    with file.open("rb") as content:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            progress.advance(task, len(chunk))
    return digest.hexdigest()
