"""Start the server, and stop it within seconds."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from dhocl.core.errors import InputError
from dhocl.core.process import prepare
from dhocl.service.access import read_token
from dhocl.service.app import create_app
from dhocl.service.connections import BUSY, STOPPING, Connection
from dhocl.service.logs import Line
from dhocl.service.replica import Replica
from dhocl.service.service import Service

logger = logging.getLogger(__name__)

ACCEPTED = 100  # connections at once: more would come before those that make room are closed
FILES = BUSY + ACCEPTED + 100  # open files: connections, and those of journal, checkpoints and processes that decode


class Server(uvicorn.Server):
    """Closes the streams of events on a stop signal, because they do not end by themselves."""

    def __init__(self, config: uvicorn.Config, service: Service | Replica) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.live.close()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        began = time.monotonic()
        await super().shutdown(sockets)
        snapshot, seconds = self._service.snapshot, round(time.monotonic() - began, 3)
        logger.info(Line("stop", entry=snapshot.applied, learned=snapshot.learned, seconds=seconds))


def start(
    open_: Callable[[str | None], Service | Replica],
    host: str,
    port: int,
    token_file: Path | None,
    protect_reading: bool,
) -> None:
    """Open a model, with the token, and serve it. Arguments are checked before anything is written."""
    token = read_token(token_file, host, protect_reading)
    _allow_files()
    prepare()
    os.umask(0o077)  # images and labels are private: only the owner may read what is written from here on
    listener = listen(host, port)
    serve(open_(token), listener, token, protect_reading)


def serve(service: Service | Replica, listener: socket.socket, token: str | None, protect_reading: bool) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    signal.signal(signal.SIGTERM, _end)  # uvicorn raises the signal again after its shutdown
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    logger.info(Line("start", address=address, **service.about()))
    print(f"dhocl: {address}", flush=True)
    Server(configured(service, token, protect_reading), service).run(sockets=[listener])


def _end(*_: Any) -> None:
    """End the process. All is on disk by now, and the interpreter would take seconds to free PyTorch."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def configured(service: Service | Replica, token: str | None, protect_reading: bool) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(service, token, protect_reading),
        http=Connection,
        loop="asyncio",  # also where uvloop is installed: one loop to test
        ws="none",
        port=0,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOPPING,
        backlog=ACCEPTED,
        limit_concurrency=BUSY,
    )


def _allow_files() -> None:
    """Raise the limit of open files as far as needed. Without a file for a connection, nobody could connect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        raise InputError(f"at most {hard} files can be open, but {FILES} are needed: raise the limit, see `ulimit -Hn`")
    if soft != resource.RLIM_INFINITY and soft < FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # for asyncio to set TCP_NODELAY
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        raise InputError(f"can not listen on {host} port {port}: {error.strerror}; choose another --port") from None
    return listener
