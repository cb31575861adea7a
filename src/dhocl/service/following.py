"""Where a replica gets checkpoints from: the folder of a model on a shared disk, or the service that writes it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request

from dhocl.core import checkpoint
from dhocl.core.errors import InputError
from dhocl.core.responses import open_response

logger = logging.getLogger(__name__)

TIMEOUT = 10.0  # seconds for a connection, for the headers, and for each read
PATIENCE = 60.0  # seconds for a checkpoint, and one more for every SLOWEST bytes
SLOWEST = 100_000
LARGEST = 4 * 2**30  # bytes of a checkpoint
BLOCK = 2**20  # bytes read at once
NEWEST = "Dhocl-Newest-Entry"  # header: number of the newest entry that the writer has accepted
REFUSED = {
    401: "it needs its token: give --token-file",
    403: "it refuses this request: give the address of the service itself",
    404: "it has no checkpoint to follow: give the address of a `dhocl serve` that learns, of this version",
}


class UnavailableError(Exception):
    """No checkpoint can be had now. Later, perhaps."""


class Checkpoint(NamedTuple):
    name: str  # a serial number and a hash
    state: dict[str, Any]
    made: float  # when it was written, by the clock of this machine


class Look(NamedTuple):
    found: Checkpoint | None  # None: the one that is known is still the newest
    newest: int | None = None  # newest entry that the writer has accepted, if it is known


class Source(Protocol):
    address: str  # a folder or a URL, for messages

    def look(self, known: str) -> Look:
        """The newest intact checkpoint, unless it is the `known` one.

        UnavailableError or OSError if there may be one later; InputError if the user must do something before.
        """


def source_of(follow: str, token: str | None) -> Source:
    """`follow`: a folder, or the address of a service."""
    if not follow.startswith(("http://", "https://")):
        return Folder(Path(follow))
    address = urlsplit(follow)
    if not address.hostname or address.query or address.fragment or address.username:
        raise InputError(f"--follow {follow}: expected an address such as https://birds.example:8000")
    return Writer(follow.rstrip("/"), token)


class Folder:
    """The folder of a model. It is only read: nothing in it is renamed or locked."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder)
        self._folder = folder / "checkpoints"
        self._damaged: dict[str, tuple[int, int]] = {}  # by name, size and time when it was read

    def look(self, known: str) -> Look:
        paths = checkpoint.newest_first(self._folder)
        if not paths:
            raise InputError(f"{self.address} holds no model: give the folder of a service, a run or a classifier")
        for path in paths:
            if path.stem == known:
                return Look(None)
            if found := self._read(path):
                return Look(found)
        raise UnavailableError(f"{self.address} has no intact checkpoint")

    def _read(self, path: Path) -> Checkpoint | None:
        """None if it is damaged or not complete. It is not read again until it changes."""
        status = path.stat()
        version = status.st_size, status.st_mtime_ns
        if self._damaged.get(path.name) == version:
            return None
        with path.open("rb") as file:
            found = _taken(path.name, iter(lambda: file.read(BLOCK), b""), status.st_mtime, self.address)
        if found is None:
            self._damaged[path.name] = version
            logger.warning("%s is damaged or not complete; it is not used", path)
        return found


class Writer:
    """A service that learns. It sends its newest checkpoint, if that is another than the known one."""

    def __init__(self, address: str, token: str | None) -> None:
        self.address = address
        self._token = token

    def look(self, known: str) -> Look:
        request = Request(f"{self.address}/checkpoint")
        if known:
            request.add_header("If-None-Match", f'"{known}"')
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")  # no redirection is followed
        try:
            with open_response(request, TIMEOUT) as response:
                return Look(self._read(response), _newest(response.headers))
        except HTTPError as error:
            with error:
                if error.code == 304:
                    return Look(None, _newest(error.headers))
                raise self._problem(error) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise UnavailableError(f"{self.address} can not be reached: {reason}") from None

    def _read(self, response: HTTPResponse) -> Checkpoint:
        name = f"{response.headers.get('ETag', '').removeprefix('W/')[1:-1]}.safetensors"  # W/: by a proxy
        if not checkpoint.NAME.fullmatch(name):
            raise InputError(f"{self.address} sends no checkpoints: give the address of a `dhocl serve`")
        made = time.time() - _age(response.headers)
        found = _taken(name, self._blocks(response), made, self.address)
        if found is None:
            raise UnavailableError(f"{self.address}: the checkpoint arrived damaged or not complete")
        return found

    def _blocks(self, response: HTTPResponse) -> Iterator[bytes]:
        began, taken = time.monotonic(), 0
        while block := response.read1(BLOCK):
            taken += len(block)
            if taken > LARGEST:
                raise InputError(f"{self.address}: its checkpoint has more than {LARGEST:,} bytes")
            if time.monotonic() > began + PATIENCE + taken / SLOWEST:
                raise UnavailableError(f"{self.address}: the checkpoint arrives too slowly")
            yield block

    def _problem(self, error: HTTPError) -> Exception:
        if 300 <= error.code < 400:
            target = re.sub(r"[^!-~]", "", error.headers.get("Location", ""))[:200]
            return InputError(f"{self.address} redirects to {target or 'another address'}: give that one as --follow")
        if error.code in REFUSED:
            return InputError(f"{self.address}: {REFUSED[error.code]}")
        return UnavailableError(f"{self.address} answers with status {error.code}")


def _taken(name: str, blocks: Iterable[bytes], made: float, address: str) -> Checkpoint | None:
    """A checkpoint; None if its hash is wrong.

    It is copied to a file of this machine first: what is mapped from a shared disk may be deleted there.
    """
    with TemporaryDirectory(prefix="dhocl-") as folder:
        path = Path(folder) / name
        with path.open("wb") as file:
            for block in blocks:
                file.write(block)
        if not checkpoint.is_intact(path):
            return None
        try:
            return Checkpoint(path.stem, checkpoint.load(path), made)
        except InputError as error:
            raise InputError(str(error).replace(folder, address)) from None


def _newest(headers: Message) -> int | None:
    text = headers.get(NEWEST, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _age(headers: Message) -> float:
    """Seconds since the checkpoint was written, by the clock of the writer; 0 if it does not tell."""
    try:
        now, made = (parsedate_to_datetime(headers[name]) for name in ("Date", "Last-Modified"))
        return max(0.0, (now - made).total_seconds())
    except (TypeError, ValueError):
        return 0.0
