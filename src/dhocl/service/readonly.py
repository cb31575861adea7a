"""What a replica answers to requests that it does not take."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from dhocl.service.access import READING
from dhocl.service.replica import Replica


def add_refusals(app: FastAPI, replica: Replica) -> None:
    """Refuse writes with 403 and the address of the writer. What is not there to be read is 404, with the same."""
    writer = replica.writer or "the service that learns in the folder of this model"
    others: Any = app.exception_handlers[405]

    @app.exception_handler(404)
    async def missing(request: Request, _: Exception) -> JSONResponse:
        detail = f"this is a read-only replica: write to {writer}"
        if request.method in READING:
            detail = f"this replica has no {request.url.path[:100]}: the journal and its images are at {writer}"
        return JSONResponse({"detail": detail, "writer": replica.writer}, 404 if request.method in READING else 403)

    @app.exception_handler(405)
    async def wrong_method(request: Request, error: Exception) -> Any:
        return await (others if request.method in READING else missing)(request, error)
