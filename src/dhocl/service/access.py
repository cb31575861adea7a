"""Access control and size limits, checked before a request is processed."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dhocl.core.errors import InputError
from dhocl.service.addresses import address_of
from dhocl.service.arriving import Bodies

OPEN = {"/", "/docs", "/health", "/openapi.json"}  # never need a token: they reveal nothing that was learned
SECRET = {"/checkpoint"}  # need the token if there is one: they hold what was learned from, too
READING = {"GET", "HEAD", "OPTIONS"}
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
SHORTEST = 16  # characters of a token
ASKING = {"/predict", "/examples"}  # they read, but with a body
IMAGES = {"/observations", "/predict", "/images", "/examples"}  # routes whose bodies contain images
SMALL = 2**16  # bytes of any other body
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def read_token(file: Path | None, host: str, protect_reading: bool) -> str | None:
    """The token, which a service needs unless it listens on this machine alone, and all may read."""
    if file is None and host not in LOOPBACK:
        raise InputError(f"--host {host} can be reached by other machines: give a --token-file, or use 127.0.0.1")
    if file is None and protect_reading:
        raise InputError("--protect-reading needs a --token-file")
    return _token(file) if file else None


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--token-file {file} can not be read: {error}") from None
    if len(token) < SHORTEST or len(token.split()) != 1:
        raise InputError(f"--token-file {file}: expected at least {SHORTEST} characters without spaces")
    return token


class Guard:
    """Middleware that checks every request.

    With a token, requests that write must send it, and with `protect_reading` those that read, too. Without a token,
    only requests to localhost are accepted. Requests that write must not come from pages of other origins (CSRF).
    """

    def __init__(self, app: ASGIApp, token: str | None, protect_reading: bool, most_bytes: int) -> None:
        self._app = app
        self._token = token
        self._protect_reading = protect_reading
        self._most = most_bytes
        self._bodies = Bodies(most_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope, Headers(scope=scope))
            with self._bodies.arriving(receive, self._limit(scope), address_of(scope)) as body:
                await self._app(scope, body.receive, send_with_headers)
        except HTTPException as problem:
            answer = JSONResponse({"detail": problem.detail}, problem.status_code, problem.headers)
            await answer(scope, receive, send_with_headers)
        except ClientDisconnect:  # nobody is left to answer
            pass

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if "transfer-encoding" in headers:  # first of all: whatever the answer is, the connection must be closed
            raise HTTPException(411, "send the request with Content-Length, not in chunks", {"Connection": "close"})
        if self._token is None and _name(host) not in LOOPBACK:
            raise HTTPException(400, "without a token only requests to localhost are accepted")
        if scope["method"] not in READING and "origin" in headers and _netloc(headers["origin"]) != host:
            raise HTTPException(403, "requests from pages of other origins are refused")
        if _needs_token(scope["method"], scope["path"], self._protect_reading):
            self._check_token(headers.get("authorization", ""))
        length, most = headers.get("content-length", "0"), self._limit(scope)
        if length.isdigit() and int(length) > most:
            raise HTTPException(413, f"the request has more than {most} bytes")

    def _limit(self, scope: Scope) -> int:
        return self._most if scope["path"] in IMAGES else min(SMALL, self._most)

    def _check_token(self, authorization: str) -> None:
        scheme, _, given = authorization.partition(" ")
        if self._token is None:
            return
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise HTTPException(401, "send the token: Authorization: Bearer ...", {"WWW-Authenticate": "Bearer"})


def describe_access(app: FastAPI, protect_reading: bool) -> None:
    """Add to the OpenAPI description which requests need the token."""
    describe = app.openapi

    def described() -> dict[str, Any]:
        schema = describe()
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                if _needs_token(method.upper(), path, protect_reading):
                    operation["security"] = [{"token": []}]
        return schema

    app.openapi = described  # type: ignore[method-assign]


def _needs_token(method: str, path: str, protect_reading: bool) -> bool:
    return not (method in READING or path in ASKING) or path in SECRET or (protect_reading and path not in OPEN)


def _netloc(origin: str) -> str | None:
    """Host and port of an Origin header; None if it is malformed."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _name(host: str) -> str:
    """The host name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
