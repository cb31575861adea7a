"""Measure and log every request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dhocl.service.logs import ACCESS, Line
from dhocl.service.measures import Measures

logger = logging.getLogger(ACCESS)

OTHER = "other"  # in place of what clients invent, so that the number of time series stays bounded


class Watch:
    """Middleware around all others, which therefore sees refused requests too."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], measures: Measures) -> None:
        self._app = app
        self._routes = [route for route in routes if isinstance(route, Route)]
        self._measures = measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, answered = time.monotonic(), False

        async def measured(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                self._record(scope, message["status"], time.monotonic() - began)
            await send(message)

        with suppress(asyncio.CancelledError):  # the service stops, and has closed the connection
            await self._app(scope, receive, measured)
        if not answered and logger.isEnabledFor(logging.INFO):
            logger.info(_request(scope, None, time.monotonic() - began))

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        method, route = self._route(scope)
        self._measures.requests.labels(method, route, status).observe(seconds)
        if status >= 400:
            self._measures.rejected.labels(status).inc()
        if logger.isEnabledFor(logging.INFO):
            logger.info(_request(scope, status, seconds))

    def _route(self, scope: Scope) -> tuple[str, str]:
        """Method and path of the route. It is matched here because a refused request is never routed."""
        found = (route.path for route in self._routes if route.matches(scope)[0] == Match.FULL)
        path = next(found, None)
        return (scope["method"], path) if path else (OTHER, OTHER)


def _request(scope: Scope, status: int | None, seconds: float) -> Line:
    """`status` is None if the client left before the response."""
    client = (scope.get("client") or ("",))[0]
    return Line(
        "request",
        method=scope["method"],
        path=scope["path"],
        status=status,
        seconds=round(seconds, 4),
        client=client,
    )
