"""The route that explains a prediction by stored examples of its class."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request

from dhocl.core.taxonomy import Label
from dhocl.service import schema
from dhocl.service.addresses import address_of
from dhocl.service.bodies import read_images
from dhocl.service.examples import Examples
from dhocl.service.journal import Entry
from dhocl.service.names import LONGEST
from dhocl.service.predicting import Predicting, images_body, refusals
from dhocl.service.schema import problems
from dhocl.service.service import Service
from dhocl.service.writing import check_rank

MOST = 24  # examples


def add_explaining(app: FastAPI, service: Service, predicting: Predicting) -> None:
    stored = Examples(service.journal, lambda: service.engine.snapshot, service.image_size)

    @app.post(
        "/examples",
        response_model=schema.Examples,
        responses=problems(403, 404, 408, 413, 415, 503),
        openapi_extra=images_body({}, "images", {"type": "string", "contentEncoding": "base64"}),
    )
    async def examples(
        request: Request,
        name: Annotated[schema.Name, Query()],
        rank: Annotated[str, Query(max_length=LONGEST)],
        count: Annotated[int, Query(ge=1, le=MOST)] = 4,
    ) -> dict[str, Any]:
        """Observations of a class, or of classes below it, that look most like an image."""
        contents = await read_images(request, service.limits)
        if len(contents) != 1:
            raise HTTPException(422, f"{len(contents)} images: send one")
        check_rank(rank, service.ranks, "the class")
        label = Label(name, service.ranks.index(rank))
        if label not in service.engine.snapshot.taxonomy:
            raise HTTPException(404, f"there is no {rank} of this name")
        address = address_of(request.scope)
        with refusals():
            (pixels,) = await predicting.decoder.pixels(contents, address)
            by, found = await predicting.aside(lambda: stored.like(pixels, label), address)
        return {"by": by, "compared": len(found), "examples": [_example(entry) for entry in found[:count]]}


def _example(entry: Entry) -> dict[str, Any]:
    content = {key: entry.content[key] for key in ("name", "rank")}
    return content | {"number": entry.number, "thumbnail": f"/observations/{entry.number}/thumbnail"}
