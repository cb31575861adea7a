"""Routes that read the journal: observations and the states of entries."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path, Query
from fastapi.responses import Response

from dhocl.service import reports, schema
from dhocl.service.corrections import corrected, has_image
from dhocl.service.reading import LARGEST
from dhocl.service.schema import problems
from dhocl.service.service import Service

RECENT = 100  # observations that are shown at most

Number = Annotated[int, Path(ge=1, le=LARGEST)]


def add_history(app: FastAPI, service: Service) -> None:
    engine, journal = service.engine, service.journal

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
