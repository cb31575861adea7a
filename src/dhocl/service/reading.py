"""Routes that read: page, taxonomy, metrics, observations, events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from dhocl.service import reports, schema
from dhocl.service.corrections import corrected, has_image
from dhocl.service.page import read_page
from dhocl.service.progress import MISTAKES
from dhocl.service.schema import problems
from dhocl.service.service import Service

LARGEST = 2**53 - 1  # largest exact integer of JSON numbers
RECENT = 100  # observations that are shown at most

Number = Annotated[int, Path(ge=1, le=LARGEST)]


def add_reading(app: FastAPI, service: Service) -> None:
    engine, journal = service.engine, service.journal
    pages = {"/": read_page("page.html"), "/docs": read_page("docs.html")}

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    def page(request: Request) -> HTMLResponse:
        content, policy = pages[request.scope["path"]]
        return HTMLResponse(content, headers={"Content-Security-Policy": policy})

    @app.get("/taxonomy", response_model=schema.Tree, responses=problems())
    def taxonomy() -> dict[str, Any]:
        """The current tree."""
        return reports.tree(engine.snapshot)

    @app.get(
        "/taxonomy/events",
        response_model=schema.TreeEvents,
        response_model_exclude_none=True,
        responses=problems(),
    )
    def taxonomy_events(since: Annotated[int, Query(ge=0, le=LARGEST)] = 0) -> dict[str, Any]:
        """The changes of the tree after version `since`."""
        return reports.tree_events(engine.snapshot, since)

    @app.get(
        "/metrics",
        response_model=schema.Metrics,
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
        return reports.confusions(engine.snapshot, n)

    @app.get("/observations/recent", response_model=list[schema.Recent], responses=problems())
    def recent(n: Annotated[int, Query(ge=1, le=RECENT)] = 20) -> list[dict[str, Any]]:
        """The newest observations, newest first."""
        return [reports.observation(corrected(journal, entry)) for entry in journal.recent(n)]

    @app.get(
        "/observations/{number}/thumbnail",
        response_class=Response,
        responses=problems(404)
        | {200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}},
    )
    def thumbnail(number: Number) -> Response:
        """A small image of a recent observation."""
        small = journal.thumbnail(number)  # made when the image was accepted: to read it costs no decode
        if small is None:
            raise HTTPException(404, "there is no image of this number, or it was deleted")
        return Response(small, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=86400"})

    @app.get(
        "/entries/{number}",
        response_model=schema.EntryState,
        response_model_exclude_unset=True,
        responses=problems(404),
    )
    def entry(number: Number) -> dict[str, Any]:
        """The state of an observation, a correction or a revision, and why it was refused."""
        found = journal.entry(number)
        if found is None:
            raise HTTPException(404, "there is no such entry, or it was deleted")
        reason = (found.outcome or {}).get("reason")
        applied = engine.snapshot.applied if engine.alive else number
        hidden = found.state == "done" and number > applied  # other requests do not show it yet
        told = "queued" if hidden else found.state
        state = {"number": found.number, "kind": found.kind, "state": told, "reason": reason}
        if found.target is not None:
            state["of"] = found.target
            if found.content["kind"] == "delete":
                gone = told == "done" and not has_image(journal, found.target) and "pooled" not in found.content
                state["erased"] = gone and journal.log_is_clear
        return state

    @app.get(
        "/events",
        response_class=StreamingResponse,
        responses=problems() | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events() -> StreamingResponse:
        """Server-sent events: `observation`, `taxonomy`, `metrics`."""
        if not service.live.make_room():
            raise HTTPException(429, "too many connections to /events", {"Retry-After": "60"})
        return StreamingResponse(service.live.stream(), media_type="text/event-stream")

    @app.get("/health", response_model=schema.Health, responses={503: {"model": schema.Health}})
    def health() -> JSONResponse:
        """Whether the service is learning."""
        status = "ok" if engine.alive else "failed"
        body = {"status": status, "queued": journal.queued, "learned": engine.snapshot.learned}
        return JSONResponse(body, 200 if engine.alive else 503)
