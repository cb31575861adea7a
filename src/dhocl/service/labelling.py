"""Routes for images without a label: post them, ask which to label next, label or remove one."""

from __future__ import annotations

from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import Response

from dhocl.service import schema
from dhocl.service.addresses import address_of
from dhocl.service.bodies import read_images
from dhocl.service.correcting import check_correctable
from dhocl.service.history import Number
from dhocl.service.journal import Post
from dhocl.service.predicting import Predicting, images_body, refusals
from dhocl.service.ranking import MOST, Ranking
from dhocl.service.schema import problems
from dhocl.service.service import Service
from dhocl.service.suggesting import Suggesting
from dhocl.service.writing import Accept, check_classes, check_rank, check_room, journal_errors

GONE = "there is no such image in the pool: it was labelled, removed, or left a full pool"


def add_labelling(app: FastAPI, service: Service, predicting: Predicting, accept: Accept) -> None:
    pool, limits = service.pool, service.limits
    ranking = Ranking(pool, lambda: service.engine.snapshot, service.image_size)
    suggesting = Suggesting(ranking, predicting.aside)

    @app.post(
        "/images",
        status_code=201,
        response_model=schema.Pooled,
        responses=problems(403, 408, 413, 415, 503),
        openapi_extra=images_body({}, "images", {"type": "string", "contentEncoding": "base64"}),
    )
    async def add(request: Request) -> dict[str, Any]:
        """Keep images without a label, to be suggested. They are on disk. If the pool is full, the oldest leave it."""
        contents = await read_images(request, limits)
        if len(contents) > limits.pool:
            raise HTTPException(413, f"{len(contents)} images: send at most {limits.pool}, the size of the pool")
        if not service.engine.alive:
            raise HTTPException(503, "learning has stopped: see the log of the service")
        with refusals():
            decoded = await predicting.decoder.decode(contents, address_of(request.scope))
        with journal_errors():
            numbers = await run_sync(pool.add, decoded)
        suggesting.catch_up()
        return {"accepted": numbers, "pool": await run_sync(lambda: len(pool))}

    @app.get("/suggestions", response_model=schema.Suggestions, responses=problems(503))
    async def suggestions(count: Annotated[int, Query(ge=1, le=MOST)] = 12) -> dict[str, Any]:
        """Which images of the pool to label next, best first, and at which rank."""
        ranked = await suggesting.ranked()
        shown = [each | {"thumbnail": f"/images/{each['id']}/thumbnail"} for each in ranked.suggestions[:count]]
        return {"suggestions": shown, "considered": ranked.considered, "pool": ranked.pool}

    @app.post(
        "/images/{number}/label",
        status_code=202,
        response_model=schema.Labelled,
        responses=problems(403, 404, 408, 409, 413, 503),
    )
    async def label(number: Number, given: schema.Class) -> dict[str, Any]:
        """Make an image of the pool an observation, in one transaction: it is neither lost nor learned twice."""
        check_rank(given.rank, service.ranks, "the label")
        check_classes({(given.name, given.rank)}, service)
        check_room(1, service)
        numbers = await accept(Post("observation", [given.model_dump()], pooled=number))
        if not numbers:
            raise HTTPException(404, GONE)
        return {"accepted": numbers[0], "queued": service.journal.queued}

    @app.post(
        "/observations/{number}/unlabel",
        status_code=202,
        response_model=schema.Unlabelled,
        responses=problems(403, 404, 408, 410, 503),
    )
    async def unlabel(number: Number) -> dict[str, Any]:
        """Forget an observation. Its image goes back to the pool, in the transaction that accepts this."""
        await run_sync(check_correctable, number, service)
        accepted = await accept(Post("correction", [{"kind": "delete"}], targets=[number], back=limits.pool))
        entry = await run_sync(service.journal.entry, accepted[0]) if accepted else None
        if entry is None:
            raise HTTPException(410, f"observation {number} is deleted")
        suggesting.catch_up()
        return {"accepted": entry.number, "id": entry.content["pooled"], "queued": service.journal.queued}

    @app.delete("/images/{number}", status_code=204, responses=problems(403, 404, 503))
    async def remove(number: Number) -> Response:
        """Remove an image from the pool and from the disk."""
        with journal_errors():
            if not await run_sync(pool.remove, number):
                raise HTTPException(404, GONE)
        return Response(status_code=204)

    @app.get(
        "/images/{number}/thumbnail",
        response_class=Response,
        responses=problems(404)
        | {200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}},
    )
    def thumbnail(number: Number) -> Response:
        """A small image of the pool."""
        small = pool.thumbnail(number)
        if small is None:
            raise HTTPException(404, GONE)
        return Response(small, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=86400"})
