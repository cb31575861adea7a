"""Routes that correct observations: relabel one, delete one, undo a batch."""

from __future__ import annotations

from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import FastAPI, HTTPException, Query

from dhocl.service import schema
from dhocl.service.corrections import batch, deletion, has_image
from dhocl.service.history import Number
from dhocl.service.journal import Post
from dhocl.service.reading import LARGEST
from dhocl.service.schema import problems
from dhocl.service.service import Service
from dhocl.service.writing import Accept, check_classes, check_rank

Place = Annotated[int | None, Query(ge=1, le=LARGEST)]


def add_correcting(app: FastAPI, service: Service, accept: Accept) -> None:
    journal = service.journal

    async def correct(number: int, content: dict[str, Any]) -> dict[str, Any]:
        await run_sync(check_correctable, number, service)
        (accepted,) = await accept(Post("correction", [content], targets=[number]))
        return {"accepted": accepted, "queued": journal.queued}

    answers = problems(403, 404, 408, 409, 410, 503)

    @app.patch("/observations/{number}", status_code=202, response_model=schema.AcceptedCorrection, responses=answers)
    async def relabel(number: Number, label: schema.Class) -> dict[str, Any]:
        """Give an observation another label, in order with all other entries."""
        check_rank(label.rank, service.ranks, "the label")
        check_classes({(label.name, label.rank)}, service)
        return await correct(number, {"kind": "relabel", "name": label.name, "rank": label.rank})

    @app.delete("/observations/{number}", status_code=202, response_model=schema.AcceptedCorrection, responses=answers)
    async def delete(number: Number) -> dict[str, Any]:
        """Forget an observation, and erase its image from disk. `GET /entries/NUMBER` tells when that is done."""
        return await correct(number, {"kind": "delete"})

    @app.delete(
        "/observations", status_code=202, response_model=schema.Accepted, responses=problems(403, 404, 413, 503)
    )
    async def undo(
        observer: Annotated[schema.Name | None, Query()] = None,
        first: Place = None,
        last: Place = None,
    ) -> dict[str, Any]:
        """Delete all observations of an observer, or with numbers from `first` to `last`, or both; the newest first."""
        if observer is None and first is None and last is None:
            raise HTTPException(422, "give `observer`, `first` or `last`: which observations are to be deleted?")
        numbers = await run_sync(batch, journal, observer, first or 1, last or LARGEST)
        if not numbers:
            raise HTTPException(404, "there are no such observations, or they were deleted or are too old")
        if len(numbers) > service.limits.queue:
            raise HTTPException(
                413,
                f"{len(numbers)} observations: delete at most {service.limits.queue} at once, by `first` and `last`",
            )
        accepted = await accept(Post("correction", [{"kind": "delete"}] * len(numbers), targets=numbers))
        return {"accepted": accepted, "queued": journal.queued}


def check_correctable(number: int, service: Service) -> None:
    found = service.journal.entry(number)
    if number > service.journal.last or (found and found.kind != "observation"):
        raise HTTPException(404, f"there is no observation {number}")
    if (by := deletion(service.journal, number)) is not None:
        raise HTTPException(410, f"observation {number} is deleted by entry {by}")
    if found is None or not has_image(service.journal, number):
        raise HTTPException(
            410, f"observation {number} is too old: the newest {service.journal.kept:,} can be corrected"
        )
