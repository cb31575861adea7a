"""Replicas on a Ray cluster, by Ray Serve: as many as the load needs, behind the address of Ray's proxies.

Each is a replica as `dhocl serve --follow` starts one, with the same application: limits, decoding in processes of its
own, batches of requests that wait together, answers. Ray Serve starts and ends replicas, and distributes requests.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

from starlette.types import ASGIApp

from dhocl.core.cluster import connect, shares
from dhocl.core.errors import InputError
from dhocl.core.process import prepare
from dhocl.service.app import create_app
from dhocl.service.bodies import Limits
from dhocl.service.following import UnavailableError, source_of
from dhocl.service.logs import Line
from dhocl.service.measures import FRESHNESS
from dhocl.service.replica import Replica
from dhocl.service.server import listen

logger = logging.getLogger(__name__)

NAME = "dhocl"  # of the application in Ray Serve
ONGOING = 32  # requests that a replica takes at once; others wait at the proxy
TARGET = 4.0  # requests at once per replica that autoscaling aims at
PATIENCE = 10.0  # seconds of load before a replica is added


class RayReplica(Replica):
    """It also tells Ray how old its model is. Ray collects this from all replicas, for Prometheus."""

    @cached_property
    def _gauges(self) -> dict[str, Any]:
        metrics: Any = import_module("ray.serve.metrics")
        return {key: metrics.Gauge(name, description=about) for key, (name, about) in FRESHNESS.items()}

    def turn(self) -> bool:
        succeeded = super().turn()
        for key, value in self.freshness().items():
            if value is not None:
                self._gauges[key].set(value)
        return succeeded


class Followed(NamedTuple):
    """What each replica is made of. It is sent to the nodes of the cluster, with the token."""

    follow: str  # a folder has the same path on every node
    limits: Limits
    writer: str | None
    token: str | None
    protect_reading: bool
    device: str = "auto"

    def build(self) -> ASGIApp:
        """The application, in a process of Ray."""
        prepare()
        replica = RayReplica(source_of(self.follow, self.token), self.limits, self.writer, self.device)
        return create_app(replica, self.token, self.protect_reading)


def parse_replicas(text: str) -> tuple[int, int]:
    """MIN:MAX, or a number.

    >>> parse_replicas("1:4"), parse_replicas("2")
    ((1, 4), (2, 2))
    """
    least, _, most = text.partition(":")
    try:
        found = int(least), int(most or least)
    except ValueError:
        found = 0, 0
    if not 1 <= found[0] <= found[1]:
        raise InputError(f"--replicas {text}: expected MIN:MAX, such as 1:4")
    return found


def start(followed: Followed, replicas: tuple[int, int], address: str | None, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C, on the cluster at `address`, or on one started here."""
    _check(followed)
    if address is None:  # else the proxies listen on other machines
        with listen(host, port) as listener:
            port = listener.getsockname()[1]
    with _deployed(followed, replicas, address, host, port):
        shown = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        least, most = replicas
        logger.info(Line("start", address=shown, follows=followed.follow, replicas=f"{least}:{most}"))
        print(f"dhocl: {shown}", flush=True)
        _wait()


def _check(followed: Followed) -> None:
    """Find mistakes here, in one line, rather than in each replica."""
    try:
        source_of(followed.follow, followed.token).look("")
    except (UnavailableError, OSError) as error:
        raise InputError(f"{error}: start the writer first") from None


@contextmanager
def _deployed(
    followed: Followed, replicas: tuple[int, int], address: str | None, host: str, port: int
) -> Iterator[None]:
    ray = connect(address, 0)
    try:
        serve: Any = import_module("ray.serve")
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        serve.start(proxy_location="EveryNode", http_options={"host": host, "port": port})
        try:
            resources = ray.cluster_resources()
            logger.info(Line("deploying", replicas=replicas[0], cores=int(resources.get("CPU", 0))))
            serve.run(_application(serve, followed.build, replicas, shares(resources)), name=NAME, route_prefix="/")
            yield
        finally:
            serve.delete(NAME) if address else serve.shutdown()
    except RuntimeError as error:
        raise InputError(f"Ray Serve can not start the replicas: {str(error).splitlines()[0]}") from error
    finally:
        ray.shutdown()


def _application(serve: Any, build: Callable[[], ASGIApp], replicas: tuple[int, int], share: dict[str, int]) -> Any:
    least, most = replicas

    def application() -> ASGIApp:  # Ray Serve takes a function, and calls it in each replica
        return build()

    scaling = {
        "min_replicas": least,
        "max_replicas": most,
        "target_ongoing_requests": TARGET,
        "upscale_delay_s": PATIENCE,
    }
    deployment = serve.deployment(
        name="replica",
        max_ongoing_requests=ONGOING,
        ray_actor_options=share,
        **({"autoscaling_config": scaling} if least < most else {"num_replicas": least}),
    )
    return deployment(serve.ingress(application)()).bind()


def _wait() -> None:
    ended = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ended.set())
    while not ended.wait(1.0):
        pass
