"""The application: routes and error responses."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.routing import Match, Route
from starlette.types import ASGIApp

import dhocl
from dhocl.service.access import Guard, describe_access
from dhocl.service.bodies import described
from dhocl.service.correcting import add_correcting
from dhocl.service.explaining import add_explaining
from dhocl.service.history import add_history
from dhocl.service.labelling import add_labelling
from dhocl.service.predicting import add_predicting
from dhocl.service.publishing import add_publishing
from dhocl.service.reading import add_reading
from dhocl.service.readonly import add_refusals
from dhocl.service.replica import Replica
from dhocl.service.service import Service
from dhocl.service.watch import Watch
from dhocl.service.writing import add_writing


def create_app(service: Service | Replica, token: str | None = None, protect_reading: bool = False) -> ASGIApp:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        if isinstance(service, Replica):
            await predicting.decoder.start()
        yield
        await anyio.to_thread.run_sync(service.stop)

    app = FastAPI(title="dhocl", version=dhocl.__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    _handle_errors(app)
    predicting = add_predicting(app, service)
    add_reading(app, service)
    if isinstance(service, Replica):
        add_refusals(app, service)
    else:
        accept = add_writing(app, service, predicting.decoder)
        add_history(app, service)
        add_correcting(app, service, accept)
        add_labelling(app, service, predicting, accept)
        add_explaining(app, service, predicting)
        add_publishing(app, service)
    if token:
        describe_access(app, protect_reading)
    guard = Guard(app, token, protect_reading, service.limits.body_bytes)
    return Watch(guard, app.routes, service.measures)


def _handle_errors(app: FastAPI) -> None:
    """Every error response is {"detail": one line}."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return JSONResponse({"detail": described(first)}, 400 if first["type"] == "json_invalid" else 422)

    @app.exception_handler(405)
    async def no_such_method(request: Request, _: Exception) -> JSONResponse:
        routes = [
            route for route in app.routes if isinstance(route, Route) and route.matches(request.scope)[0] != Match.NONE
        ]
        allowed = sorted({method for route in routes for method in route.methods or ()})
        return JSONResponse({"detail": f"use {' or '.join(allowed)}"}, 405, {"Allow": ", ".join(allowed)})

    @app.exception_handler(MemoryError)
    async def no_memory(_: Request, error: Exception) -> JSONResponse:
        logging.getLogger(__name__).error("a request is refused for want of memory: %s", error)
        return JSONResponse(
            {"detail": "no memory or process for this request: try again later"}, 503, {"Retry-After": "10"}
        )

    @app.exception_handler(sqlite3.Error)
    async def no_journal(_: Request, error: Exception) -> JSONResponse:
        logging.getLogger(__name__).error("the journal can not be read: %s", error)
        return JSONResponse({"detail": "the journal can not be read: see the log of the service"}, 503)

    @app.exception_handler(Exception)
    async def defect(_: Request, __: Exception) -> JSONResponse:
        return JSONResponse({"detail": "internal error of the service: see its log"}, 500)
