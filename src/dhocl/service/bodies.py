"""Parse requests with images: multipart forms, or JSON with base64."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from anyio.to_thread import run_sync
from fastapi import HTTPException, Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from dhocl.service.names import LONGEST
from dhocl.service.schema import Images, Observations, Observed

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Limits:
    queue: int = 1000  # entries that may wait to be learned
    batch: int = 64  # images per request
    image_bytes: int = 8 * 2**20
    pixels: int = 25_000_000
    classes: int = 10_000
    images: int | None = None  # newest images that are kept, so that they can be corrected; None: as many as usual
    pool: int = 2000  # images without a label

    @property
    def body_bytes(self) -> int:
        """Enough for one image of the largest size in base64, or for many of usual size."""
        return 4 * self.image_bytes


class Named(NamedTuple):
    name: str
    rank: str
    image: bytes
    observer: str | None = None


async def read_observations(request: Request, limits: Limits) -> list[Named]:
    if _is_form(request):
        async with _form(request, limits.batch + 1, 3 * limits.batch + 2) as form:
            images = await _uploads(form, limits)
            names, ranks, observers = _texts(form, "name"), _texts(form, "rank"), _texts(form, "observer")
        if not len(images) == len(names) == len(ranks):
            raise HTTPException(
                422, f"{len(images)} images, {len(names)} names and {len(ranks)} ranks: give one each, in order"
            )
        if len(observers) not in (0, 1, len(images)):
            raise HTTPException(422, f"{len(images)} images and {len(observers)} observers: give none, one or one each")
        each: list[str | None] = [*observers] or [None]
        rows = zip(names, ranks, each * len(images) if len(each) == 1 else each, strict=True)
        given = [_valid(Observed, {"name": name, "rank": rank, "observer": who}) for name, rank, who in rows]
        return [Named(c.name, c.rank, image, c.observer) for c, image in zip(given, images, strict=True)]
    body = await request.body()

    def parsed() -> list[Named]:
        _check_parts(body, limits)
        given = _json(body, Observations).observations
        _check_count(len(given), limits)
        return [Named(o.name, o.rank, _decoded(o.image, place, limits), o.observer) for place, o in enumerate(given)]

    return await run_sync(parsed)  # in a thread: megabytes of JSON would block the event loop


async def read_images(request: Request, limits: Limits) -> list[bytes]:
    if _is_form(request):
        async with _form(request, limits.batch + 1, 2) as form:
            return await _uploads(form, limits)
    body = await request.body()

    def parsed() -> list[bytes]:
        _check_parts(body, limits)
        given = _json(body, Images).images
        _check_count(len(given), limits)
        return [_decoded(text, place, limits) for place, text in enumerate(given)]

    return await run_sync(parsed)


def one_line(error: ValidationError) -> str:
    """Place and message of the first error."""
    return described(error.errors(include_url=False, include_input=False)[0])


def described(error: object) -> str:
    """An error of pydantic as one line."""
    assert isinstance(error, dict)
    where = ".".join(str(step) for step in error["loc"] if step not in ("body", "query", "path"))
    what = str(error["msg"]).removeprefix("Value error, ")
    return " ".join(f"{where}: {what}".removeprefix(": ").split())[:300]


def _is_form(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("multipart/form-data", "application/json"):
        raise HTTPException(415, "send multipart/form-data or application/json")
    return kind == "multipart/form-data"


class _Parser(MultiPartParser):
    """Keeps files in memory, which the limits of bodies bound. Temporary files would need room on a disk."""

    spool_max_size = 0  # never


@asynccontextmanager
async def _form(request: Request, files: int, fields: int) -> AsyncIterator[FormData]:
    try:
        async with aclosing(request.stream()) as stream:
            form = await _Parser(request.headers, stream, max_files=files, max_fields=fields).parse()
    except MultiPartException as error:
        raise HTTPException(400, error.message) from None
    except UnicodeError:  # of the codec that the charset names
        raise HTTPException(400, "the form can not be read in its charset: send UTF-8") from None
    try:
        yield form
    finally:
        await form.close()


def _json(body: bytes, model: type[M]) -> M:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        bad = error.errors()[0]["type"] == "json_invalid"
        raise HTTPException(400 if bad else 422, one_line(error)) from None


def _valid(model: type[M], fields: dict[str, str | None]) -> M:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise HTTPException(422, one_line(error)) from None


async def _uploads(form: FormData, limits: Limits) -> list[bytes]:
    files = form.getlist("image")
    _check_count(len(files), limits)
    contents = []
    for place, file in enumerate(files):
        if not isinstance(file, UploadFile):
            raise HTTPException(422, f"image {place} is not a file: send it with a file name")
        _check_size(file.size or 0, place, limits)
        contents.append(await file.read())
        await file.close()  # frees its memory
    return contents


def _texts(form: FormData, field: str) -> list[str]:
    texts = [text for text in form.getlist(field) if isinstance(text, str)]
    if len(texts) != len(form.getlist(field)):
        raise HTTPException(422, f"a {field} is a file: send it as text")
    return texts


def _decoded(text: str, place: int, limits: Limits) -> bytes:
    _check_size(len(text) * 3 // 4 - 2, place, limits)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise HTTPException(422, f"image {place} is not base64") from None


def _check_parts(body: bytes, limits: Limits) -> None:
    """Refuse JSON of far too many values without parsing it: parsed, each can take more than 1 kB."""
    if body.count(b",") > limits.batch * (4 + 3 * LONGEST):  # of an image: separators, and any in the other texts
        raise HTTPException(413, f"the JSON has too many values: send at most {limits.batch} images per request")


def _check_count(count: int, limits: Limits) -> None:
    if count == 0:
        raise HTTPException(422, "the request has no image: send at least one")
    if count > limits.batch:
        raise HTTPException(413, f"{count} images: send at most {limits.batch} per request")


def _check_size(size: int, place: int, limits: Limits) -> None:
    if size > limits.image_bytes:
        raise HTTPException(413, f"image {place} has more than {limits.image_bytes} bytes")
