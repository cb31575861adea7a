"""Responses of a server that is not trusted: limited in time and size, and from nowhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from socket import SHUT_RDWR
from threading import Timer
from typing import Any
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

LARGEST = 2**20  # bytes of a response


def respond(request: Request, timeout: float) -> bytes:
    """The response to a request. OSError, HTTPException or ValueError if it fails, is late or too large."""
    with open_response(request, timeout) as response:
        return _read(response, timeout)


def open_response(request: Request, timeout: float) -> HTTPResponse:
    """A response whose headers came within `timeout` seconds, which is then the limit of each read.

    OSError or HTTPException if it fails; HTTPError, which is one, for any status but 2xx. No redirection is followed.
    """
    return build_opener(_Prompt, _Straight).open(request, timeout=timeout)  # type: ignore[no-any-return]


class _Straight(HTTPRedirectHandler):
    """Follows no redirection: a server could send questions to hosts that only this machine can reach."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _Prompt(HTTPSHandler, HTTPHandler):
    """Hangs up when the headers are not complete in time; the time-out of a socket applies to each read only."""

    def do_open(self, http_class: Any, req: Request, **more: Any) -> HTTPResponse:
        opened: list[HTTPConnection] = []

        def connection(*given: Any, **options: Any) -> HTTPConnection:
            opened.append(http_class(*given, **options))
            return opened[0]

        seconds = req.timeout or 0.0
        timer, end = Timer(seconds, _hang_up, [opened]), time.monotonic() + seconds
        timer.daemon = True
        timer.start()
        try:
            return super().do_open(connection, req, **more)
        except (OSError, HTTPException):
            if time.monotonic() < end:
                raise
            raise TimeoutError("the response timed out") from None
        finally:
            timer.cancel()


def _hang_up(opened: Sequence[HTTPConnection]) -> None:
    for connection in opened:
        with suppress(OSError):
            if connection.sock:
                connection.sock.shutdown(SHUT_RDWR)


def _read(response: HTTPResponse, timeout: float) -> bytes:
    """The whole response within `timeout` seconds; the time-out of a socket applies to each read only."""
    content, end = b"", time.monotonic() + timeout
    while piece := response.read1(2**16):
        content += piece
        if len(content) > LARGEST:
            raise ValueError(f"the response has more than {LARGEST:,} bytes")
        if time.monotonic() > end:
            raise TimeoutError("the response timed out")
    return content
