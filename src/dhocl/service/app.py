"""The routes."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import FastAPI, HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse

import dhocl
from dhocl.errors import InputError
from dhocl.service import images, live, reports, schema
from dhocl.service.bodies import described, read_images, read_observations
from dhocl.service.journal import IMAGES, FullError
from dhocl.service.page import read_page
from dhocl.service.service import Service

T = TypeVar("T")

AT_ONCE = 2  # requests whose images are decoded, and as many that are predicted; the others wait
LARGEST = 2**53 - 1  # what JSON numbers hold

Number = Annotated[int, Path(ge=1, le=LARGEST)]


def create_app(service: Service) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await anyio.to_thread.run_sync(service.stop)

    app = FastAPI(title="dhocl", version=dhocl.__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    _tell_problems(app)
    _add_learning(app, service)
    _add_reading(app, service)
    return app


def _tell_problems(app: FastAPI) -> None:
    """Every error is {"detail": one line about the request}."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return JSONResponse({"detail": described(first)}, 400 if first["type"] == "json_invalid" else 422)

    @app.exception_handler(Exception)
    async def defect(_: Request, __: Exception) -> JSONResponse:
        return JSONResponse({"detail": "something is wrong with the service"}, 500)


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": schema.Problem} for code in (400, 401, 422, 429, *codes)}


def _images_body(multipart: dict[str, Any], name: str, item: dict[str, Any]) -> dict[str, Any]:
    """The description of a request with images: a form with these fields beside them, or JSON with a list of items."""
    image = _list({"type": "string", "format": "binary"})
    content = {
        "multipart/form-data": {"schema": _object({"image": image, **multipart})},
        "application/json": {"schema": _object({name: _list(item)})},
    }
    return {"requestBody": {"required": True, "content": content}}


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _add_learning(app: FastAPI, service: Service) -> None:
    limits = service.limits
    learning, predicting = anyio.CapacityLimiter(AT_ONCE), anyio.CapacityLimiter(AT_ONCE)
    texts = _list({"type": "string"})

    def decoded(contents: list[bytes]) -> list[Any]:
        size, most = service.image_size, limits.pixels
        return [images.pixels(content, size, most, f"image {n}") for n, content in enumerate(contents)]

    @app.post(
        "/observations",
        status_code=202,
        response_model=schema.Accepted,
        responses=_problems(403, 408, 413, 415, 503),
        openapi_extra=_images_body(
            {"name": texts, "rank": texts}, "observations", schema.Observation.model_json_schema()
        ),
    )
    async def observe(request: Request) -> dict[str, Any]:
        """Learn from images with names. Accepted means durable; it is learned within seconds, once."""
        given = await read_observations(request, limits)
        for place, observation in enumerate(given):
            _check_rank(observation.rank, service.ranks, f"observation {place}")
        _check_room(len(given), service)
        await _in_thread(lambda: decoded([observation.image for observation in given]), learning)
        contents = [{"name": o.name, "rank": o.rank} for o in given]
        numbers = await _appended(service, "observation", contents, [o.image for o in given])
        return {"accepted": numbers, "queued": service.journal.queued}

    @app.post(
        "/predict",
        response_model=schema.Predictions,
        responses=_problems(403, 408, 409, 413, 415),
        openapi_extra=_images_body({}, "images", {"type": "string", "contentEncoding": "base64"}),
    )
    async def predict(
        request: Request, confidence: Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)] = 0.0
    ) -> dict[str, Any]:
        """What images show, at every rank."""
        contents = await read_images(request, limits)
        arrays = await _in_thread(lambda: decoded(contents), predicting)
        view = service.engine.view
        if not len(view.taxonomy):
            raise HTTPException(409, "nothing is learned yet: post observations first")
        return {"predictions": await _in_thread(lambda: view.predict(arrays, confidence), predicting)}

    @app.post(
        "/taxonomy", status_code=202, response_model=schema.AcceptedRevision, responses=_problems(403, 408, 413, 503)
    )
    async def revise(revision: schema.Revision) -> dict[str, Any]:
        """Change the tree, at this place among the observations. What the tree refuses then has no effect."""
        content = revision.model_dump(by_alias=True)
        for part in ("child", "parent", "class"):
            if part in content:
                _check_rank(content[part]["rank"], service.ranks, part)
        if "parent" in content:
            below = content.get("child") or content["class"]
            if service.ranks.index(content["parent"]["rank"]) >= service.ranks.index(below["rank"]):
                raise HTTPException(422, "a parent's rank is coarser")
        numbers = await _appended(service, "revision", [content])
        return {"accepted": numbers[0]}


def _add_reading(app: FastAPI, service: Service) -> None:
    engine, journal = service.engine, service.journal
    page, policy = read_page()

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def home() -> HTMLResponse:
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    @app.get("/taxonomy", response_model=schema.Tree, responses=_problems())
    def taxonomy() -> dict[str, Any]:
        """The tree as it is known."""
        return reports.tree(engine.view)

    @app.get(
        "/taxonomy/events",
        response_model=schema.TreeEvents,
        response_model_exclude_none=True,
        responses=_problems(),
    )
    def taxonomy_events(since: Annotated[int, Query(ge=0, le=LARGEST)] = 0) -> dict[str, Any]:
        """How the tree grew, after version `since`."""
        return reports.tree_events(engine.view, since)

    @app.get(
        "/metrics",
        response_model=schema.Metrics,
        responses=_problems() | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    def metrics(request: Request, format: Annotated[str | None, Query(pattern="^(prometheus|json)$")] = None) -> Any:
        """Counts and progressive accuracy; as text for Prometheus if `text/plain` is asked for."""
        numbers = service.metrics()
        if (format or ("prometheus" if "text/plain" in request.headers.get("accept", "") else "json")) == "json":
            return numbers
        return PlainTextResponse(reports.prometheus(numbers), media_type="text/plain; version=0.0.4")

    @app.get("/observations/recent", response_model=list[schema.Recent], responses=_problems())
    def recent(n: Annotated[int, Query(ge=1, le=IMAGES)] = 20) -> list[dict[str, Any]]:
        """The newest observations, newest first."""
        return [reports.observation(entry) for entry in journal.recent(n)]

    @app.get(
        "/observations/{number}/thumbnail",
        response_class=Response,
        responses=_problems(404)
        | {200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}},
    )
    def thumbnail(number: Number) -> Response:
        """A small picture of a recent observation."""
        content = journal.image(number)
        if content is None:
            raise HTTPException(404, "there is no image of that number any more")
        try:
            small = images.thumbnail(content, service.limits.pixels)
        except InputError:
            raise HTTPException(404, "there is no image of that number any more") from None
        return Response(small, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=86400"})

    @app.get("/entries/{number}", response_model=schema.EntryState, responses=_problems(404))
    def entry(number: Number) -> dict[str, Any]:
        """What became of an observation or a revision."""
        found = journal.entry(number)
        if found is None:
            raise HTTPException(404, "there is no such entry, or it is long ago")
        return {"number": found.number, "kind": found.kind, "state": found.state}

    @app.get(
        "/events",
        response_class=StreamingResponse,
        responses=_problems() | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events() -> StreamingResponse:
        """Server-sent events: `observation`, `taxonomy`, `metrics`."""
        if service.live.listeners >= live.LISTENERS:
            raise HTTPException(429, "too many listeners", {"Retry-After": "60"})
        return StreamingResponse(service.live.stream(), media_type="text/event-stream")

    @app.get("/health", response_model=schema.Health, responses={503: {"model": schema.Health}})
    def health() -> JSONResponse:
        """Whether it learns."""
        status = "ok" if engine.alive else "failed"
        body = {"status": status, "queued": journal.queued, "learned": engine.view.learned}
        return JSONResponse(body, 200 if engine.alive else 503)


def _check_rank(rank: str, ranks: list[str], what: str) -> None:
    if rank not in ranks:
        raise HTTPException(422, f"{what} has an unknown rank: choose of {', '.join(ranks)}")


def _check_room(count: int, service: Service) -> None:
    queued = service.journal.queued
    if count > service.limits.queue:
        raise HTTPException(413, f"{count} observations: at most {service.limits.queue} fit into the queue")
    if queued + count > service.limits.queue:
        missing = queued + count - service.limits.queue
        seconds = math.ceil(min(60, max(1, missing / max(service.engine.per_second, 0.1))))
        raise HTTPException(429, f"{queued} entries wait already", {"Retry-After": str(seconds)})


async def _appended(
    service: Service, kind: str, contents: list[dict[str, Any]], images: list[bytes] | None = None
) -> list[int]:
    if not service.engine.alive:
        raise HTTPException(503, "learning has stopped")
    try:
        numbers = await anyio.to_thread.run_sync(
            lambda: service.journal.append(kind, contents, images or [], service.limits.queue)
        )
    except FullError:
        _check_room(len(contents), service)
        raise HTTPException(429, "the queue is full", {"Retry-After": "1"}) from None
    except sqlite3.OperationalError:
        raise HTTPException(503, "nothing can be stored at the moment", {"Retry-After": "60"}) from None
    service.engine.wake()
    return numbers


async def _in_thread(work: Callable[[], T], limiter: anyio.CapacityLimiter) -> T:
    try:
        return await anyio.to_thread.run_sync(work, limiter=limiter)
    except images.TypeRefusedError as error:
        raise HTTPException(415, str(error)) from None
    except images.SizeRefusedError as error:
        raise HTTPException(413, str(error)) from None
    except InputError as error:
        raise HTTPException(422, str(error)) from None
