"""Routes that read the model, of a service that learns and of a replica: page, taxonomy, metrics, events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from dhocl.service import reports, schema
from dhocl.service.addresses import address_of
from dhocl.service.page import read_page
from dhocl.service.predictor import Predictor
from dhocl.service.progress import MISTAKES
from dhocl.service.schema import problems
from dhocl.service.trees import EventsContent, TreeContent, in_parts

LARGEST = 2**53 - 1  # largest exact integer of JSON numbers


def add_reading(app: FastAPI, service: Predictor) -> None:
    pages = {"/": read_page("page.html", service.learns), "/docs": read_page("docs.html")}
    tree, changes = TreeContent(lambda: service.snapshot), EventsContent(lambda: service.snapshot)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    def page(request: Request) -> HTMLResponse:
        content, policy = pages[request.scope["path"]]
        return HTMLResponse(content, headers={"Content-Security-Policy": policy})

    @app.get("/taxonomy", response_model=schema.Tree, responses=problems())
    async def taxonomy() -> Response:
        """The current tree."""
        return in_parts(await tree.get())

    @app.get(
        "/taxonomy/events",
        response_model=schema.TreeEvents,
        responses=problems(),
    )
    async def taxonomy_events(since: Annotated[int, Query(ge=0, le=LARGEST)] = 0) -> Response:
        """The changes of the tree after version `since`."""
        return in_parts(await changes.get(since))

    @app.get(
        "/metrics",
        response_model=service.metrics_model,
        responses=problems() | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    def metrics(request: Request, format: Annotated[str | None, Query(pattern="^(prometheus|json)$")] = None) -> Any:
        """Counts and progressive accuracy; with latencies, for Prometheus, if `text/plain` is accepted."""
        if (format or ("prometheus" if "text/plain" in request.headers.get("accept", "") else "json")) == "json":
            return service.metrics()
        return Response(service.measures.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @app.get("/confusions", response_model=dict[str, list[schema.Confusion]], responses=problems())
    def confusions(n: Annotated[int, Query(ge=1, le=MISTAKES)] = 20) -> dict[str, list[dict[str, Any]]]:
        """By rank, which classes are taken for which, most frequent first. Classes that were new do not count."""
        return reports.confusions(service.snapshot, n)

    @app.get(
        "/events",
        response_class=StreamingResponse,
        responses=problems() | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events(request: Request) -> StreamingResponse:
        """Server-sent events: `observation`, `taxonomy`, `metrics`."""
        address = address_of(request.scope)
        if not service.live.make_room(address):
            raise HTTPException(429, "too many connections to /events", {"Retry-After": "60"})
        return StreamingResponse(service.live.stream(address), media_type="text/event-stream")

    @app.get("/health", response_model=service.health_model, responses={503: {"model": service.health_model}})
    async def health() -> JSONResponse:
        """Whether the service does its work."""
        found = service.health()
        return JSONResponse(found, 503 if found["status"] == "failed" else 200)
