"""The route that predicts, of a service that learns and of a replica."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Annotated, Any, NamedTuple

import anyio
from anyio.to_thread import run_sync
from fastapi import FastAPI, HTTPException, Query, Request

from dhocl.classifier.prediction import FALSE_ALARMS
from dhocl.classifier.restriction import restrict
from dhocl.core.decode import Decoding
from dhocl.core.errors import InputError
from dhocl.service import images, schema
from dhocl.service.addresses import address_of
from dhocl.service.aside import Aside
from dhocl.service.bodies import read_images
from dhocl.service.decoding import Decoder
from dhocl.service.names import LONGEST
from dhocl.service.predictor import Predictor
from dhocl.service.schema import problems
from dhocl.service.served import Asked, Snapshot, as_array
from dhocl.service.together import Together
from dhocl.service.turns import BusyError

MOST = 100  # classes per rank in a prediction
NAMES = 1000  # of a list of classes that may be predicted
AT_ONCE = 64  # images that are predicted at once

Listed = Annotated[str, Query(min_length=1, max_length=2 * LONGEST)]  # with its rank
Found = list[dict[str, Any]] | InputError


class Predicting(NamedTuple):
    """What other routes with images share."""

    decoder: Decoder
    aside: Aside


class Wanted(NamedTuple):
    """A request. All of its answer is of one snapshot."""

    snapshot: Snapshot
    pixels: list[bytes]
    asked: Asked


def add_predicting(app: FastAPI, service: Predictor) -> Predicting:
    decoder = Decoder(service.image_size, service.limits.pixels)
    searching = anyio.CapacityLimiter(1)  # for names: several threads at once would slow the event loop down

    def predictions(requests: list[Wanted]) -> list[Found]:
        found: list[Found] = []
        for snapshot, group in groupby(requests, lambda request: request.snapshot):
            same = list(group)
            arrays = [as_array(image, service.image_size) for request in same for image in request.pixels]
            found += snapshot.predict(arrays, [request.asked for request in same])
        return found

    predicted = Together(predictions, lambda request: len(request.pixels), AT_ONCE)

    @app.post(
        "/predict",
        response_model=schema.Predictions,
        response_model_exclude_unset=True,
        responses=problems(403, 408, 409, 413, 415),
        openapi_extra=images_body({}, "images", {"type": "string", "contentEncoding": "base64"}),
    )
    async def predict(
        request: Request,
        confidence: Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)] = 0.0,
        top: Annotated[int, Query(ge=1, le=MOST)] = 1,
        decode: Decoding = "path",
        false_alarms: Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)] = FALSE_ALARMS,
        within: Listed | None = None,
        among: Annotated[list[Listed] | None, Query(max_length=NAMES)] = None,
    ) -> dict[str, Any]:
        """Predict images: the most probable path of the tree, and the answer, its deepest class that is sure."""
        contents, address = await read_images(request, service.limits), address_of(request.scope)
        with refusals():
            pixels = await decoder.pixels(contents, address)
        snapshot = service.snapshot
        if not len(snapshot.taxonomy):
            raise HTTPException(409, "nothing is learned yet: post observations first")
        with refusals():
            restriction = await run_sync(restrict, snapshot.taxonomy, service.ranks, within, among, limiter=searching)
            asked = Asked(len(pixels), confidence, top, decode, restriction, false_alarms)
            found = await predicted(Wanted(snapshot, pixels, asked), address)
            if isinstance(found, InputError):
                raise found
        return {"predictions": found} | ({"unknown": restriction.unknown} if among else {})

    return Predicting(decoder, Aside())


@contextmanager
def refusals() -> Iterator[None]:
    """Statuses of images and names that are refused, and of images that wait too long."""
    try:
        yield
    except BusyError:
        raise HTTPException(429, "too many images wait for their turn", {"Retry-After": "10"}) from None
    except images.TypeRefusedError as error:
        raise HTTPException(415, str(error)) from None
    except images.SizeRefusedError as error:
        raise HTTPException(413, str(error)) from None
    except InputError as error:
        raise HTTPException(422, str(error).replace("`", "")) from None


def images_body(
    multipart: dict[str, Any], name: str, item: dict[str, Any], optional: dict[str, Any] | None = None
) -> dict[str, Any]:
    """OpenAPI description of a request with images: a form with more fields, or JSON with a list of items."""
    image = list_of({"type": "string", "format": "binary"})
    content = {
        "multipart/form-data": {"schema": _object({"image": image, **multipart}, optional or {})},
        "application/json": {"schema": _object({name: list_of(item)}, {})},
    }
    return {"requestBody": {"required": True, "content": content}}


def list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


def _object(properties: dict[str, Any], optional: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties | optional, "required": list(properties)}
