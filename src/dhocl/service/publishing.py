"""The route from which replicas get the newest checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import formatdate
from os import fstat
from pathlib import Path
from typing import BinaryIO

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response, StreamingResponse

from dhocl.core import checkpoint
from dhocl.service.following import BLOCK, NEWEST
from dhocl.service.schema import problems
from dhocl.service.service import Service


class Shelf:
    """The newest intact checkpoint of a folder. Each is read once to find out whether it is intact."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._intact = ""  # name of the last one

    def open(self) -> tuple[str, BinaryIO] | None:
        """Name and content. It can be read to its end, even if the file is deleted meanwhile."""
        for path in checkpoint.newest_first(self._folder):
            try:
                file = path.open("rb")
                if path.name == self._intact or checkpoint.is_intact(path):
                    self._intact = path.name
                    return path.stem, file
                file.close()
            except FileNotFoundError:  # a newer one has just replaced it
                return self.open()
        return None


def add_publishing(app: FastAPI, service: Service) -> None:
    shelf = Shelf(service.folder / "checkpoints")

    @app.get(
        "/checkpoint",
        response_class=StreamingResponse,
        responses=problems(503)
        | {
            200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
            304: {"description": "The checkpoint of If-None-Match is still the newest."},
        },
    )
    def newest(request: Request) -> Response:
        """The newest checkpoint, for replicas. It holds all that is stored of the model, with images for replay.

        Its ETag is a serial number and a hash of the content.
        """
        found = shelf.open()
        if found is None:
            raise HTTPException(503, "there is no intact checkpoint: see the log of the service")
        name, file = found
        status, tag = fstat(file.fileno()), f'"{name}"'
        headers = {
            "ETag": tag,
            "Last-Modified": formatdate(status.st_mtime, usegmt=True),
            NEWEST: str(service.journal.last),
        }
        if tag in request.headers.get("if-none-match", ""):  # one tag or several; a proxy may have marked them as weak
            file.close()
            return Response(status_code=304, headers=headers)
        headers["Content-Length"] = str(status.st_size)
        return StreamingResponse(_blocks(file), media_type="application/octet-stream", headers=headers)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while block := file.read(BLOCK):
            yield block
