"""Routes that write: observations and revisions of the tree."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request

from dhocl.core.taxonomy import Label
from dhocl.service import schema
from dhocl.service.addresses import address_of
from dhocl.service.bodies import read_observations
from dhocl.service.decoding import Decoder
from dhocl.service.journal import MovedError, Post
from dhocl.service.predicting import images_body, list_of, refusals
from dhocl.service.schema import problems
from dhocl.service.service import Service
from dhocl.service.together import Together

AT_ONCE = 64  # entries that are written at once

Accept = Callable[[Post], Awaitable[list[int]]]


def add_writing(app: FastAPI, service: Service, decoder: Decoder) -> Accept:
    limits = service.limits
    texts = list_of({"type": "string"})

    def append(posts: list[Post]) -> list[list[int] | None]:
        return service.journal.append(posts, limits.queue)

    appended = Together(append, lambda post: len(post.contents), AT_ONCE)

    async def accept(post: Post) -> list[int]:
        if not service.engine.alive:
            raise HTTPException(503, "learning has stopped: see the log of the service")
        with journal_errors():
            numbers = await appended(post)
        if numbers is None:
            check_room(len(post.contents), service)
            raise HTTPException(429, "the queue is full", {"Retry-After": "1"})
        service.engine.wake()
        return numbers

    @app.post(
        "/observations",
        status_code=202,
        response_model=schema.Accepted,
        responses=problems(403, 408, 409, 413, 415, 503),
        openapi_extra=images_body(
            {"name": texts, "rank": texts},
            "observations",
            schema.Observation.model_json_schema(),
            optional={"observer": texts},
        ),
    )
    async def observe(request: Request) -> dict[str, Any]:
        """Learn from images with names. An accepted observation is on disk, and is learned once, within seconds."""
        given = await read_observations(request, limits)
        for place, observation in enumerate(given):
            check_rank(observation.rank, service.ranks, f"observation {place}")
        check_classes({(observation.name, observation.rank) for observation in given}, service)
        check_room(len(given), service)
        with refusals():
            decoded = await decoder.decode([observation.image for observation in given], address_of(request.scope))
        contents = [{"name": o.name, "rank": o.rank} | ({"observer": o.observer} if o.observer else {}) for o in given]
        numbers = await accept(Post("observation", contents, decoded))
        return {"accepted": numbers, "queued": service.journal.queued}

    @app.post(
        "/taxonomy",
        status_code=202,
        response_model=schema.AcceptedRevision,
        responses=problems(403, 408, 409, 413, 503),
    )
    async def revise(revision: schema.Revision) -> dict[str, Any]:
        """Change the tree, in order with the observations. A revision that the tree refuses has no effect."""
        content = revision.model_dump(by_alias=True)
        for part in ("child", "parent", "class"):
            if part in content:
                check_rank(content[part]["rank"], service.ranks, part)
        if "parent" in content:
            below = content.get("child") or content["class"]
            if service.ranks.index(content["parent"]["rank"]) >= service.ranks.index(below["rank"]):
                raise HTTPException(422, "the rank of the parent must be coarser than that of the child")
        if content["kind"] in ("add", "rename"):
            name = content["to"] if content["kind"] == "rename" else content["class"]["name"]
            check_classes({(name, content["class"]["rank"])}, service)
        numbers = await accept(Post("revision", [content]))
        return {"accepted": numbers[0]}

    return accept


def check_rank(rank: str, ranks: list[str], what: str) -> None:
    if rank not in ranks:
        raise HTTPException(422, f"{what} has an unknown rank: choose one of {', '.join(ranks)}")


def check_classes(named: set[tuple[str, str]], service: Service) -> None:
    """Refuse new classes beyond the limit. Classes that wait in the queue do not count yet."""
    known, most = service.engine.snapshot.taxonomy, service.limits.classes
    new = sum(Label(name, service.ranks.index(rank)) not in known for name, rank in named)
    if new and len(known) + new > most:
        raise HTTPException(
            409, f"{new} new classes, but {len(known)} of at most {most} are known: use these, or raise --max-classes"
        )


def check_room(count: int, service: Service) -> None:
    queued = service.journal.queued
    if count > service.limits.queue:
        raise HTTPException(413, f"{count} observations: send at most {service.limits.queue}, the size of the queue")
    if queued + count > service.limits.queue:
        missing = queued + count - service.limits.queue
        seconds = math.ceil(min(60, max(1, missing / max(service.engine.per_second, 0.1))))
        raise HTTPException(429, f"the queue is full: {queued} entries", {"Retry-After": str(seconds)})


@contextmanager
def journal_errors() -> Iterator[None]:
    try:
        yield
    except MovedError:
        raise HTTPException(503, "the folder of the model was moved, entries are not stored") from None
    except sqlite3.OperationalError:
        raise HTTPException(
            503, "the journal can not be written, entries are not stored", {"Retry-After": "60"}
        ) from None
